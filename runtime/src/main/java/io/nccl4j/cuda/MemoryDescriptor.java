package io.nccl4j.cuda;

import io.nccl4j.InvalidUsageException;

/** An open file descriptor that refers to memory. */
public interface MemoryDescriptor extends AutoCloseable {
  /**
   * Its number in this process.
   *
   * @throws InvalidUsageException if it was closed
   */
  int number();

  /** Closes the descriptor; the memory stays. Closing twice does nothing. */
  @Override
  void close();
}
