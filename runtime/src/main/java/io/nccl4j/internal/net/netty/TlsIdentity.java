package io.nccl4j.internal.net.netty;

import io.nccl4j.BackendUnavailableException;
import java.io.IOException;
import java.security.GeneralSecurityException;
import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.security.KeyStore;
import java.security.MessageDigest;
import java.security.cert.Certificate;
import java.security.cert.X509Certificate;
import java.security.spec.ECGenParameterSpec;
import javax.net.ssl.KeyManager;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.TrustManager;
import javax.net.ssl.X509TrustManager;

/**
 * Who the ports of a network are in TLS: a key of their own, made at start and never stored, and a
 * certificate of it, which others know by its fingerprint.
 *
 * <p>TLS itself accepts any certificate here: it makes sure that the other end has its key. {@link
 * Connection} compares the fingerprint with that of the peer's address as soon as it knows which
 * peer that is, and before anything else that it says counts.
 */
final class TlsIdentity {
  /** Of SHA-256 over the certificate. */
  static final int FINGERPRINT_BYTES = 32;

  private static final String PROTOCOL = "TLSv1.3";

  private final SSLContext context;
  private final byte[] fingerprint;

  private TlsIdentity(SSLContext context, byte[] fingerprint) {
    this.context = context;
    this.fingerprint = fingerprint;
  }

  /**
   * A new one.
   *
   * @throws BackendUnavailableException if this Java runtime does not offer what it takes
   */
  static TlsIdentity create() {
    try {
      KeyPairGenerator generator = KeyPairGenerator.getInstance("EC");
      generator.initialize(new ECGenParameterSpec("secp256r1"));
      KeyPair keys = generator.generateKeyPair();
      X509Certificate certificate = SelfSignedCertificate.of(keys);
      SSLContext context = SSLContext.getInstance(PROTOCOL);
      context.init(keyManagers(keys, certificate), new TrustManager[] {new Anybody()}, null);
      // Connections are never resumed; who tries costs no memory.
      context.getServerSessionContext().setSessionCacheSize(1);
      return new TlsIdentity(context, fingerprint(certificate));
    } catch (GeneralSecurityException | IOException e) {
      throw (BackendUnavailableException)
          new BackendUnavailableException(
                  "this Java runtime offers no TLS 1.3 with keys of the curve P-256: "
                      + e.getMessage(),
                  "use one whose security settings allow that, or NCCL4J_NETWORK_SECURITY=auth on a"
                      + " network that you trust")
              .causedBy(e);
    }
  }

  private static KeyManager[] keyManagers(KeyPair keys, X509Certificate certificate)
      throws GeneralSecurityException, IOException {
    char[] none = {};
    KeyStore inMemory = KeyStore.getInstance("PKCS12");
    inMemory.load(null, none);
    inMemory.setKeyEntry("port", keys.getPrivate(), none, new Certificate[] {certificate});
    KeyManagerFactory factory =
        KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
    factory.init(inMemory, none);
    return factory.getKeyManagers();
  }

  /** What others know it by. */
  byte[] fingerprint() {
    return fingerprint.clone();
  }

  static byte[] fingerprint(Certificate certificate) throws GeneralSecurityException {
    return MessageDigest.getInstance("SHA-256").digest(certificate.getEncoded());
  }

  /** One end of a new connection. */
  SSLEngine engine(boolean dials) {
    SSLEngine engine = context.createSSLEngine();
    engine.setUseClientMode(dials);
    engine.setEnabledProtocols(new String[] {PROTOCOL});
    engine.setNeedClientAuth(true);
    return engine;
  }

  /** Accepts every certificate: fingerprints are compared later. */
  private static final class Anybody implements X509TrustManager {
    @Override
    public void checkClientTrusted(X509Certificate[] chain, String authentication) {}

    @Override
    public void checkServerTrusted(X509Certificate[] chain, String authentication) {}

    @Override
    public X509Certificate[] getAcceptedIssuers() {
      return new X509Certificate[0];
    }
  }
}
