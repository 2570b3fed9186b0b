package io.nccl4j.internal.net.ucx;

import io.nccl4j.InvalidArgumentException;
import java.nio.ByteBuffer;
import java.util.Arrays;

/**
 * Where a port is reached, and who it is: a mark (8 bytes), its id (8 bytes), and what UCX calls a
 * worker's address.
 *
 * @param id random, so that nobody guesses it who has not been told
 */
record UcxAddress(long id, byte[] worker) {
  /** "nccl-ucx" in ASCII. */
  private static final long MARK = 0x6e63636c2d756378L;

  byte[] toBytes() {
    return ByteBuffer.allocate(2 * Long.BYTES + worker.length)
        .putLong(MARK)
        .putLong(id)
        .put(worker)
        .array();
  }

  static UcxAddress of(byte[] bytes) {
    ByteBuffer in = ByteBuffer.wrap(bytes);
    if (bytes.length <= 2 * Long.BYTES || in.getLong() != MARK) {
      throw new InvalidArgumentException(
          "these " + bytes.length + " bytes are no address of a UCX port",
          "set NCCL4J_NETWORK to the same in all processes");
    }
    return new UcxAddress(in.getLong(), Arrays.copyOfRange(bytes, 2 * Long.BYTES, bytes.length));
  }
}
