package io.nccl4j.internal.net.netty;

import io.nccl4j.internal.net.NetworkConfig;
import io.nccl4j.internal.net.Port;
import io.netty.buffer.ByteBuf;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.security.SecureRandom;
import java.util.Arrays;
import java.util.UUID;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import org.jspecify.annotations.Nullable;

/**
 * How the ends of a new connection prove to each other that they know the job's secret. Who dials
 * sends HELLO, the other end CHALLENGE, who dials PROOF, the other end VERDICT:
 *
 * <pre>
 *   HELLO      what it is for 8, job 16, id of the dialing port 16, of the dialed one 16, nonce 32
 *   CHALLENGE  nonce 32, HMAC-SHA256 of the dialed end 32
 *   PROOF      HMAC-SHA256 of the dialing end 32
 *   VERDICT    8
 * </pre>
 *
 * <p>Each HMAC covers who speaks, the HELLO and both nonces, so that none can be used twice or sent
 * back. Lengths are fixed; nothing is parsed but what has been compared.
 */
final class Handshake {
  static final int HELLO_BYTES = 88;
  static final int CHALLENGE_BYTES = 64;
  static final int PROOF_BYTES = 32;
  static final int VERDICT_BYTES = 8;

  /** The connection is good. */
  static final long WELCOME = 0x6e346a2077656c63L;

  /** The other end has dialed as well, and its connection is the one that counts. */
  static final long TAKE_MINE = 0x6e346a206d696e65L;

  private static final long MESSAGES = 0x6e34706f72740001L;
  private static final long WATCH = 0x6e34776174630001L;
  private static final int NONCE_BYTES = 32;
  private static final String ALGORITHM = "HmacSHA256";
  private static final byte[] DIALED = "nccl4j port, dialed".getBytes(StandardCharsets.US_ASCII);
  private static final byte[] DIALING = "nccl4j port, dialing".getBytes(StandardCharsets.US_ASCII);
  private static final SecureRandom RANDOM = new SecureRandom();

  private final NetworkConfig config;
  private boolean watches;
  private byte[] hello = {};
  private byte[] answer = {};

  Handshake(NetworkConfig config) {
    this.config = config;
  }

  /** The connection is to carry nothing, see {@link Port#watch}. */
  void watch() {
    watches = true;
  }

  /** Whether the connection is to carry nothing, as who dials says. */
  boolean watches() {
    return watches;
  }

  /** The dialing end begins. */
  byte[] hello(UUID own, UUID peer) {
    hello =
        ByteBuffer.allocate(HELLO_BYTES)
            .putLong(watches ? WATCH : MESSAGES)
            .putLong(config.job().getMostSignificantBits())
            .putLong(config.job().getLeastSignificantBits())
            .putLong(own.getMostSignificantBits())
            .putLong(own.getLeastSignificantBits())
            .putLong(peer.getMostSignificantBits())
            .putLong(peer.getLeastSignificantBits())
            .put(nonce())
            .array();
    return hello;
  }

  /**
   * The dialed end hears it.
   *
   * @return the id of the dialing port; null if this is no hello to port {@code own}
   */
  @Nullable UUID hear(ByteBuf in, UUID own) {
    hello = bytes(in, HELLO_BYTES);
    ByteBuffer fields = ByteBuffer.wrap(hello);
    long purpose = fields.getLong();
    watches = purpose == WATCH;
    boolean ours =
        (watches || purpose == MESSAGES)
            && new UUID(fields.getLong(), fields.getLong()).equals(config.job());
    UUID from = new UUID(fields.getLong(), fields.getLong());
    return ours && new UUID(fields.getLong(), fields.getLong()).equals(own) ? from : null;
  }

  /** The dialed end's answer to a hello. */
  byte[] challenge() {
    answer = nonce();
    return ByteBuffer.allocate(CHALLENGE_BYTES).put(answer).put(mac(DIALED)).array();
  }

  /** Whether the dialed end knows the secret. */
  boolean acceptChallenge(ByteBuf in) {
    answer = bytes(in, NONCE_BYTES);
    return MessageDigest.isEqual(bytes(in, PROOF_BYTES), mac(DIALED));
  }

  /** The dialing end's answer to a challenge. */
  byte[] proof() {
    return mac(DIALING);
  }

  /** Whether the dialing end knows the secret. */
  boolean acceptProof(ByteBuf in) {
    return MessageDigest.isEqual(bytes(in, PROOF_BYTES), mac(DIALING));
  }

  private byte[] mac(byte[] speaker) {
    try {
      Mac mac = Mac.getInstance(ALGORITHM);
      mac.init(new SecretKeySpec(config.secret(), ALGORITHM));
      mac.update(speaker);
      mac.update(hello);
      mac.update(answer);
      return mac.doFinal();
    } catch (GeneralSecurityException e) {
      throw new IllegalStateException("every Java platform has " + ALGORITHM, e);
    }
  }

  private static byte[] nonce() {
    byte[] nonce = new byte[NONCE_BYTES];
    RANDOM.nextBytes(nonce);
    return nonce;
  }

  private static byte[] bytes(ByteBuf in, int length) {
    byte[] bytes = new byte[length];
    in.readBytes(bytes);
    return bytes;
  }

  @Override
  public String toString() {
    return "handshake of " + Arrays.hashCode(hello);
  }
}
