package io.nccl4j.internal.bootstrap;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.util.Arrays;
import java.util.UUID;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;
import org.jspecify.annotations.Nullable;

/**
 * One connection's packets: builds and checks them. A packet is
 *
 * <pre>
 *   0   2  "N4"
 *   2   1  type
 *   3   1  0
 *   4   4  length of the body
 *   8  32  HMAC-SHA256, or zeros
 *  40   n  body
 * </pre>
 *
 * <p>The joiner opens with HELLO (version, its nonce); the creator answers PROOF (its nonce); the
 * joiner sends JOIN, or DECLINE if its rank cannot come; the creator sends ANSWER and FDS packets;
 * the joiner says READY, or DECLINE, and the creator ends with an ANSWER that is the verdict. Over
 * TCP the joiner proves itself at once, by a PROOF that is empty, and may JOIN much later. From
 * PROOF on every packet is authenticated, over the rendezvous's name, direction, type, number, both
 * nonces and body. REFUSED is not: it tells a joiner without the secret why, and nothing but that
 * joiner depends on it. Used by one thread at a time.
 */
final class Session {
  static final byte HELLO = 1;
  static final byte PROOF = 2;
  static final byte JOIN = 3;
  static final byte REFUSED = 4;
  static final byte ANSWER = 5;
  static final byte FDS = 6;
  static final byte DECLINE = 7;
  static final byte READY = 8;

  // Over TCP only.
  static final byte SHARE = 9;
  static final byte LATE = 10;
  static final byte FETCH = 11;

  /** Reasons in the body of {@link #REFUSED}. */
  static final byte WRONG_SECRET = 1;

  static final byte OTHER_VERSION = 3;

  /** There is no rendezvous of that name, yet or any more. */
  static final byte UNKNOWN = 4;

  static final int NONCE_BYTES = 32;
  static final int HEADER_BYTES = 40;

  /** Most bytes of a body. */
  static final int MAX_BODY_BYTES = 16 << 10;

  /** Most descriptors that go with a packet. */
  static final int FDS_PER_PACKET = 64;

  private static final int MAC_BYTES = 32;
  private static final String ALGORITHM = "HmacSHA256";
  private static final byte[] LABEL = "nccl4j rendezvous 1".getBytes(StandardCharsets.US_ASCII);
  private static final byte[] HIDING = "nccl4j hidden 1".getBytes(StandardCharsets.US_ASCII);
  private static final byte[] NO_MAC = new byte[MAC_BYTES];

  private final Mac mac;
  private final UUID name;
  private final boolean creator;
  private byte[] joinerNonce = {};
  private byte[] creatorNonce = {};
  private long sent;
  private long received;

  /** A packet as it came: nothing in it has been verified. */
  record Packet(byte type, byte[] mac, byte[] body) {}

  Session(RendezvousId id, boolean creator) {
    this(id.name(), id.secret(), creator);
  }

  Session(UUID name, byte[] secret, boolean creator) {
    this.name = name;
    this.creator = creator;
    mac = mac(secret);
  }

  private static Mac mac(byte[] secret) {
    try {
      Mac mac = Mac.getInstance(ALGORITHM);
      mac.init(new SecretKeySpec(secret, ALGORITHM));
      return mac;
    } catch (GeneralSecurityException e) {
      throw new IllegalStateException("every Java platform has " + ALGORITHM, e);
    }
  }

  /** What nobody can compute without the secret. */
  static byte[] hash(byte[] secret, String text) {
    return mac(secret).doFinal(text.getBytes(StandardCharsets.UTF_8));
  }

  /** Sets the nonces, each when it is known. */
  void nonces(byte[] ofJoiner, byte[] ofCreator) {
    joinerNonce = ofJoiner;
    creatorNonce = ofCreator;
  }

  /** A packet that proves nothing. */
  static byte[] plain(byte type, byte[] body) {
    return packet(type, NO_MAC, body);
  }

  /** The next authenticated packet in this side's direction. */
  byte[] seal(byte type, byte[] body) {
    return packet(type, authenticate(creator, type, sent++, body), body);
  }

  /**
   * What only the two sides can read; done twice it is as it was. For one body of a session, since
   * each is hidden by the same bytes.
   */
  byte[] hidden(byte[] body) {
    byte[] hidden = body.clone();
    for (int at = 0; at < hidden.length; at += MAC_BYTES) {
      mac.update(HIDING);
      mac.update(ByteBuffer.allocate(Integer.BYTES).putInt(at).flip());
      mac.update(joinerNonce);
      mac.update(creatorNonce);
      byte[] pad = mac.doFinal();
      for (int i = 0; i < Math.min(pad.length, hidden.length - at); i++) {
        hidden[at + i] ^= pad[i];
      }
    }
    return hidden;
  }

  /** Takes a packet apart; null if it is none. */
  static @Nullable Packet parse(byte[] bytes) {
    if (bytes.length < HEADER_BYTES) {
      return null;
    }
    ByteBuffer in = ByteBuffer.wrap(bytes);
    if (in.get() != 'N' || in.get() != '4') {
      return null;
    }
    byte type = in.get();
    if (in.get() != 0 || in.getInt() != bytes.length - HEADER_BYTES) {
      return null;
    }
    byte[] macBytes = new byte[MAC_BYTES];
    in.get(macBytes);
    return new Packet(type, macBytes, Arrays.copyOfRange(bytes, HEADER_BYTES, bytes.length));
  }

  /** Whether the packet is the other side's next one. */
  boolean verify(Packet packet) {
    byte[] expected = authenticate(!creator, packet.type, received, packet.body);
    if (!MessageDigest.isEqual(expected, packet.mac)) {
      return false;
    }
    received++;
    return true;
  }

  private byte[] authenticate(boolean fromCreator, byte type, long number, byte[] body) {
    mac.update(LABEL);
    mac.update(
        ByteBuffer.allocate(3 * Long.BYTES + 2)
            .putLong(name.getMostSignificantBits())
            .putLong(name.getLeastSignificantBits())
            .putLong(number)
            .put((byte) (fromCreator ? 1 : 0))
            .put(type)
            .flip());
    mac.update(joinerNonce);
    mac.update(creatorNonce);
    mac.update(body);
    return mac.doFinal();
  }

  private static byte[] packet(byte type, byte[] macBytes, byte[] body) {
    return ByteBuffer.allocate(HEADER_BYTES + body.length)
        .put((byte) 'N')
        .put((byte) '4')
        .put(type)
        .put((byte) 0)
        .putInt(body.length)
        .put(macBytes)
        .put(body)
        .array();
  }
}
