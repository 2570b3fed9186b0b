package io.nccl4j.internal.bootstrap;

import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.UniqueId;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.UUID;
import java.util.zip.CRC32;

/**
 * What the bytes of all unique ids of this library have in common.
 *
 * <pre>
 *   0   6  "NCCL4J"
 *   6   2  version
 *   8  16  name
 *  24  32  secret
 *  56  68  depends on the version
 * 124   4  CRC-32 of the 124 bytes before
 * </pre>
 */
final class IdBytes {
  static final int SECRET_BYTES = 32;

  private static final byte[] MAGIC = "NCCL4J".getBytes(StandardCharsets.US_ASCII);
  private static final int NAME = 8;
  private static final int SECRET = 24;
  private static final int CHECKED_BYTES = UniqueId.BYTES - Integer.BYTES;

  private IdBytes() {}

  /** Whether they are an id of this library, of whatever version. */
  static boolean areOurs(byte[] bytes) {
    return bytes.length == UniqueId.BYTES
        && Arrays.equals(bytes, 0, MAGIC.length, MAGIC, 0, MAGIC.length);
  }

  /** The version of an id of this library. */
  static int version(byte[] bytes) {
    return ByteBuffer.wrap(bytes).getShort(MAGIC.length);
  }

  /**
   * Reads an id of this library, from its name on.
   *
   * @throws InvalidArgumentException if the bytes are damaged
   * @throws InvalidUsageException if they are of another version
   */
  static ByteBuffer read(byte[] bytes, int version) {
    if (version(bytes) != version) {
      throw new InvalidUsageException(
          "the unique id has version " + version(bytes) + ", this library reads version " + version,
          "use the same nccl4j jars in all processes");
    }
    ByteBuffer in = ByteBuffer.wrap(bytes);
    if (in.getInt(CHECKED_BYTES) != checksum(bytes)) {
      throw new InvalidArgumentException(
          "the unique id is damaged: its checksum is wrong", "pass it on unchanged");
    }
    return in.position(MAGIC.length + Short.BYTES);
  }

  /** Begins an id: what follows the secret is the caller's to put. */
  static ByteBuffer begin(int version, UUID name, byte[] secret) {
    return ByteBuffer.allocate(UniqueId.BYTES)
        .put(MAGIC)
        .putShort((short) version)
        .putLong(name.getMostSignificantBits())
        .putLong(name.getLeastSignificantBits())
        .put(secret);
  }

  /** Ends one that {@link #begin} began. */
  static byte[] end(ByteBuffer id) {
    byte[] bytes = id.array();
    id.putInt(CHECKED_BYTES, checksum(bytes));
    return bytes;
  }

  /**
   * An id whose secret, and all behind it, only those can read who know a key. What is hidden twice
   * is as it was. Each id is hidden by bytes of its own, since its random name is part of them.
   */
  static byte[] hide(byte[] id, byte[] key) {
    byte[] hidden = id.clone();
    // Something shorter is no id, which its reader says.
    for (int at = SECRET; at < hidden.length; at += SECRET_BYTES) {
      String name = HexFormat.of().formatHex(id, NAME, SECRET);
      byte[] pad = Session.hash(key, "id " + name + " from " + at);
      for (int i = 0; i < Math.min(pad.length, hidden.length - at); i++) {
        hidden[at + i] ^= pad[i];
      }
    }
    return hidden;
  }

  private static int checksum(byte[] bytes) {
    CRC32 crc = new CRC32();
    crc.update(bytes, 0, CHECKED_BYTES);
    return (int) crc.getValue();
  }
}
