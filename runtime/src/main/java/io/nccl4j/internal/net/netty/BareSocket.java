package io.nccl4j.internal.net.netty;

import java.io.IOException;
import java.nio.ByteBuffer;

/**
 * A connection's socket, for messages that Netty's channel would only slow down. Neither method
 * blocks.
 */
interface BareSocket {
  /**
   * Reads into the space left in {@code buffer}, without changing its position.
   *
   * @return number of bytes; 0 if none have arrived, −1 if no more will
   */
  int read(ByteBuffer buffer) throws IOException;

  /**
   * Writes the bytes left in {@code buffer}, without changing its position.
   *
   * @return number of bytes that the system has accepted
   */
  int write(ByteBuffer buffer) throws IOException;
}
