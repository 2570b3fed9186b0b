package io.nccl4j;

/** Physical memory of a device, which is reached where it is mapped. See {@link VirtualMemory}. */
public interface PhysicalMemory extends AutoCloseable {
  /** The device it lies on; for imported memory the one that imported it. */
  Device device();

  /** Its size. */
  long byteSize();

  /**
   * A file descriptor for other processes of this machine. Passing it on duplicates it; the memory
   * lives as long as anyone has it mapped or imported.
   *
   * @return a new descriptor, which the caller closes
   * @throws InvalidUsageException if it was not created for that, or is imported
   */
  MemoryDescriptor exportDescriptor();

  /**
   * A fabric handle for other processes and machines: {@value #FABRIC_BYTES} bytes.
   *
   * @throws InvalidUsageException if it was not created for that, or is imported
   */
  byte[] exportFabric();

  /** Size of a fabric handle. */
  int FABRIC_BYTES = 64;

  /** Whether it was given back. */
  boolean isClosed();

  /**
   * Gives it back. Closing twice does nothing.
   *
   * @throws InvalidUsageException if it is mapped somewhere, or bound to multicast memory
   */
  @Override
  void close();
}
