package io.nccl4j.cuda;

import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.internal.check.Require;
import java.util.List;

/**
 * Reserved addresses of a GPU, into which physical memory is mapped piece by piece, so that memory
 * can grow in place. See {@link VirtualMemory}.
 */
public interface AddressRange extends AutoCloseable {
  /** The first address. */
  long address();

  /** Size of the range in bytes. */
  long byteSize();

  /** Number of bytes mapped. */
  long mappedBytes();

  /**
   * Maps all of {@code memory} at {@code offset}; see {@link #map(long, PhysicalMemory, long,
   * long)}.
   */
  default void map(long offset, PhysicalMemory memory) {
    map(offset, Require.present(memory, "memory"), 0, memory.byteSize());
  }

  /**
   * Maps physical memory, or a part of it if the driver supports that: current drivers map only the
   * whole. No device has access before {@link #setAccess}.
   *
   * @param offset position in this range, in bytes
   * @param memory memory of this or another device; it cannot be closed while it is mapped
   * @param memoryOffset first byte of the part of {@code memory}
   * @param bytes size of the part in bytes
   * @throws InvalidArgumentException if the part or its place is outside, or not a multiple of the
   *     granularity
   * @throws InvalidUsageException if something is mapped there, {@code memory} is closed, or the
   *     driver does not map parts
   */
  void map(long offset, PhysicalMemory memory, long memoryOffset, long bytes);

  /**
   * Grants devices access to mapped memory, or revokes it; other devices keep theirs.
   *
   * @param offset start of a mapping
   * @param bytes size, up to the end of the same mapping or of one that follows without a gap
   * @throws InvalidArgumentException if a device cannot reach the memory
   * @throws InvalidUsageException if the range does not match what is mapped
   */
  void setAccess(long offset, long bytes, DeviceAccess access, List<Device> devices);

  /**
   * A buffer over mapped memory, for streams and operations of this device. Closing the buffer
   * leaves the mapping.
   *
   * @throws InvalidUsageException if not all of it is mapped, or this device may not read and write
   *     it
   */
  DeviceBuffer buffer(long offset, long bytes);

  /**
   * Unmaps a part of the range, which holds one or more whole mappings.
   *
   * @throws InvalidUsageException if a mapping crosses the part's boundaries, nothing is mapped
   *     there, or buffers over it are open
   */
  void unmap(long offset, long bytes);

  /** Whether the addresses were released. */
  boolean isClosed();

  /**
   * Releases the addresses. Closing twice does nothing.
   *
   * @throws InvalidUsageException if something is mapped
   */
  @Override
  void close();
}
