package io.nccl4j.internal.net.netty;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.KeyPair;
import java.security.Signature;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import javax.security.auth.x500.X500Principal;

/**
 * Makes the certificate of a key that is known by its fingerprint: TLS wants one around each public
 * key, though nobody looks at its name and its dates.
 *
 * <p>Java reads certificates and writes none, Netty's own builder is meant for tests and needs
 * Bouncy Castle. What is written here is X.509 v3 (RFC 5280) in DER (X.690), signed with ECDSA.
 */
final class SelfSignedCertificate {
  private static final int INTEGER = 0x02;
  private static final int BIT_STRING = 0x03;
  private static final int UTC_TIME = 0x17;
  private static final int GENERALIZED_TIME = 0x18;
  private static final int SEQUENCE = 0x30;
  private static final int VERSION = 0xa0;
  private static final int LONG_FORM = 0x80;
  private static final int BYTE = 0xff;

  /** The object identifier 1.2.840.10045.4.3.2, ecdsa-with-SHA256. */
  private static final byte[] SHA256_WITH_ECDSA = {
    0x06, 0x08, 0x2a, (byte) 0x86, 0x48, (byte) 0xce, 0x3d, 0x04, 0x03, 0x02
  };

  private SelfSignedCertificate() {}

  /** Of an elliptic-curve key. */
  static X509Certificate of(KeyPair keys) throws GeneralSecurityException {
    byte[] algorithm = der(SEQUENCE, SHA256_WITH_ECDSA);
    byte[] name = new X500Principal("CN=nccl4j").getEncoded();
    byte[] signed =
        der(
            SEQUENCE,
            der(VERSION, der(INTEGER, new byte[] {2})),
            der(INTEGER, new byte[] {1}),
            algorithm,
            name,
            // Always valid, since clocks differ; the last date is RFC 5280's for "no end".
            der(SEQUENCE, der(UTC_TIME, "700101000000Z"), der(GENERALIZED_TIME, "99991231235959Z")),
            name,
            keys.getPublic().getEncoded());
    Signature signer = Signature.getInstance("SHA256withECDSA");
    signer.initSign(keys.getPrivate());
    signer.update(signed);
    byte[] noUnusedBits = new byte[1];
    byte[] signature = der(BIT_STRING, noUnusedBits, signer.sign());
    byte[] whole = der(SEQUENCE, signed, algorithm, signature);
    return (X509Certificate)
        CertificateFactory.getInstance("X.509")
            .generateCertificate(new ByteArrayInputStream(whole));
  }

  private static byte[] der(int tag, String text) {
    return der(tag, text.getBytes(StandardCharsets.US_ASCII));
  }

  private static byte[] der(int tag, byte[]... parts) {
    ByteArrayOutputStream content = new ByteArrayOutputStream();
    for (byte[] part : parts) {
      content.writeBytes(part);
    }
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    out.write(tag);
    int length = content.size();
    // The shortest form that holds it.
    if (length > BYTE) {
      out.write(LONG_FORM | 2);
      out.write(length >> Byte.SIZE);
    } else if (length >= LONG_FORM) {
      out.write(LONG_FORM | 1);
    }
    out.write(length & BYTE);
    out.writeBytes(content.toByteArray());
    return out.toByteArray();
  }
}
