package io.nccl4j;

import java.util.List;

/**
 * Reserved addresses of a GPU, into which physical memory is mapped piece by piece: the rest can be
 * mapped later, so that it grows in place. See {@link VirtualMemory}.
 */
public interface AddressRange extends AutoCloseable {
  /** The first address. */
  long address();

  /** Number of addresses, in bytes. */
  long byteSize();

  /** Bytes that are mapped. */
  long mappedBytes();

  /** Maps all of {@code memory} at {@code offset}; see the other form. */
  default void map(long offset, PhysicalMemory memory) {
    map(offset, Require.present(memory, "memory"), 0, memory.byteSize());
  }

  /**
   * Maps physical memory, or a part of it where the driver takes parts: those of today take the
   * whole only. No device has access before {@link #setAccess}.
   *
   * @param offset where in this range, in bytes
   * @param memory of this device or another; it is not closed while it is mapped
   * @param memoryOffset first byte of the part
   * @param bytes size of the part
   * @throws InvalidArgumentException if the part or its place is outside, or not a multiple of the
   *     granularity
   * @throws InvalidUsageException if something is mapped there, {@code memory} is closed, or the
   *     driver does not map parts
   */
  void map(long offset, PhysicalMemory memory, long memoryOffset, long bytes);

  /**
   * Opens mapped memory to devices, or closes it to them; others keep what they have.
   *
   * @param offset start of a mapping
   * @param bytes to the end of the same mapping or of one that follows without a gap
   * @throws InvalidArgumentException if a device cannot reach the memory
   * @throws InvalidUsageException if that is not what is mapped
   */
  void setAccess(long offset, long bytes, DeviceAccess access, List<Device> devices);

  /**
   * A buffer over mapped memory, for streams and operations of this device. Closing it ends the
   * buffer and leaves the mapping.
   *
   * @throws InvalidUsageException if it is not all mapped, or not open to this device for reading
   *     and writing
   */
  DeviceBuffer buffer(long offset, long bytes);

  /**
   * Unmaps what is mapped in a part of the range: one mapping or several whole ones.
   *
   * @throws InvalidUsageException if a mapping begins before the part or ends behind it, nothing is
   *     mapped there, or buffers over it are open
   */
  void unmap(long offset, long bytes);

  /** Whether it was given back. */
  boolean isClosed();

  /**
   * Gives the addresses back. Closing twice does nothing.
   *
   * @throws InvalidUsageException if something is mapped
   */
  @Override
  void close();
}
