package io.nccl4j.cuda;

import io.nccl4j.Device;
import io.nccl4j.InvalidUsageException;

/** Physical memory of a device, accessible where it is mapped. See {@link VirtualMemory}. */
public interface PhysicalMemory extends AutoCloseable {
  /** The device it lies on; for imported memory, the one that imported it. */
  Device device();

  /** Its size in bytes. */
  long byteSize();

  /**
   * Exports a file descriptor for other processes of this machine. Passing it on duplicates it; the
   * memory lives as long as anyone has it mapped or imported.
   *
   * @return a new descriptor, which the caller closes
   * @throws InvalidUsageException if it was not created for export, or is imported
   */
  MemoryDescriptor exportDescriptor();

  /**
   * Exports a fabric handle for other processes and machines: {@value #FABRIC_BYTES} bytes.
   *
   * @throws InvalidUsageException if it was not created for export, or is imported
   */
  byte[] exportFabric();

  /** Size of a fabric handle in bytes. */
  int FABRIC_BYTES = 64;

  /** Whether it was released. */
  boolean isClosed();

  /**
   * Releases it. Closing twice does nothing.
   *
   * @throws InvalidUsageException if it is mapped somewhere, or bound to multicast memory
   */
  @Override
  void close();
}
