package io.nccl4j;

/** An open file descriptor that stands for memory. */
public interface MemoryDescriptor extends AutoCloseable {
  /**
   * Its number in this process.
   *
   * @throws InvalidUsageException if it was closed
   */
  int number();

  /** Closes it; the memory stays. Closing twice does nothing. */
  @Override
  void close();
}
