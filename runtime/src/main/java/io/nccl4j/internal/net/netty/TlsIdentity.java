package io.nccl4j.internal.net.netty;

import io.nccl4j.BackendUnavailableException;
import io.netty.buffer.PooledByteBufAllocator;
import io.netty.handler.ssl.ClientAuth;
import io.netty.handler.ssl.OpenSsl;
import io.netty.handler.ssl.SslContext;
import io.netty.handler.ssl.SslContextBuilder;
import io.netty.handler.ssl.SslProvider;
import io.netty.util.ReferenceCountUtil;
import java.io.IOException;
import java.security.GeneralSecurityException;
import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.security.cert.Certificate;
import java.security.cert.X509Certificate;
import java.security.spec.ECGenParameterSpec;
import javax.net.ssl.SSLEngine;
import javax.net.ssl.X509TrustManager;
import org.jspecify.annotations.Nullable;

/**
 * Who the ports of a network are in TLS: a key of their own, made at start and never stored, and a
 * certificate of it, which others know by its fingerprint.
 *
 * <p>TLS itself accepts any certificate here: it makes sure that the other end has its key. {@link
 * Connection} compares the fingerprint with that of the peer's address as soon as it knows which
 * peer that is, and before anything else that it says counts.
 *
 * <p>TLS is OpenSSL's if Netty finds its native library, else Java's. The two ends of a connection
 * may differ in that.
 */
final class TlsIdentity implements AutoCloseable {
  /** Of SHA-256 over the certificate. */
  static final int FINGERPRINT_BYTES = 32;

  private static final String PROTOCOL = "TLSv1.3";

  private final SslContext dialing;
  private final SslContext listening;
  private final byte[] fingerprint;

  private TlsIdentity(SslContext dialing, SslContext listening, byte[] fingerprint) {
    this.dialing = dialing;
    this.listening = listening;
    this.fingerprint = fingerprint;
  }

  /**
   * A new one.
   *
   * @throws BackendUnavailableException if this Java runtime does not offer what it takes
   */
  static TlsIdentity create() {
    SslContext dialing = null;
    try {
      SslProvider provider = byOpenSsl() ? SslProvider.OPENSSL_REFCNT : SslProvider.JDK;
      if (!SslProvider.isTlsv13Supported(provider)) {
        throw new NoSuchAlgorithmException(PROTOCOL);
      }
      KeyPairGenerator generator = KeyPairGenerator.getInstance("EC");
      generator.initialize(new ECGenParameterSpec("secp256r1"));
      KeyPair keys = generator.generateKeyPair();
      X509Certificate certificate = SelfSignedCertificate.of(keys);
      byte[] fingerprint = fingerprint(certificate);
      dialing =
          finish(
              SslContextBuilder.forClient().keyManager(keys.getPrivate(), certificate), provider);
      SslContext listening =
          finish(SslContextBuilder.forServer(keys.getPrivate(), certificate), provider);
      return new TlsIdentity(dialing, listening, fingerprint);
    } catch (GeneralSecurityException | IOException e) {
      release(dialing);
      throw (BackendUnavailableException)
          new BackendUnavailableException(
                  "this Java runtime offers no TLS 1.3 with keys of the curve P-256: "
                      + e.getMessage(),
                  "use one whose security settings allow that, or NCCL4J_NETWORK_SECURITY=auth on a"
                      + " network that you trust")
              .causedBy(e);
    }
  }

  private static SslContext finish(SslContextBuilder builder, SslProvider provider)
      throws IOException {
    return builder
        .sslProvider(provider)
        .protocols(PROTOCOL)
        .clientAuth(ClientAuth.REQUIRE)
        .trustManager(new Anybody())
        // Peers are known by their fingerprints, not by names.
        .endpointIdentificationAlgorithm("")
        // Connections are never resumed; who tries costs no memory.
        .sessionCacheSize(1)
        .build();
  }

  private static void release(@Nullable SslContext context) {
    if (context != null) {
      ReferenceCountUtil.release(context);
    }
  }

  /** Whose TLS it is, if not Java's; empty otherwise. */
  String library() {
    return byOpenSsl() ? OpenSsl.versionString() : "";
  }

  /** False also for a native library that is too old for TLS 1.3. */
  private static boolean byOpenSsl() {
    return SslProvider.isTlsv13Supported(SslProvider.OPENSSL_REFCNT);
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
    return (dials ? dialing : listening).newEngine(PooledByteBufAllocator.DEFAULT);
  }

  /** Gives back what OpenSSL holds; engines in use keep what they need. */
  @Override
  public void close() {
    release(dialing);
    release(listening);
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
