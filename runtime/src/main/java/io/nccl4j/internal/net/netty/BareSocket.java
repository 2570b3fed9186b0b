package io.nccl4j.internal.net.netty;

import java.io.IOException;
import java.nio.ByteBuffer;

/**
 * A connection's socket, for messages that would only lose time in Netty's channel. Neither method
 * waits.
 */
interface BareSocket {
  /**
   * Reads to what is left of {@code buffer}, whose position stays.
   *
   * @return how many bytes; 0 if none have come, −1 if none will
   */
  int read(ByteBuffer buffer) throws IOException;

  /**
   * Writes what is left of {@code buffer}, whose position stays.
   *
   * @return how many bytes the system has taken
   */
  int write(ByteBuffer buffer) throws IOException;
}
