package io.nccl4j.memory;

import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.Provider;
import io.nccl4j.Stream;
import io.nccl4j.SystemErrorException;
import io.nccl4j.internal.check.Require;

/**
 * Device memory for buffers that are allocated and freed in stream order.
 *
 * <p>A buffer is allocated for a stream, and its {@link DeviceBuffer#close()} takes effect in that
 * stream's order: close it right after its last operation was called, without waiting. The memory
 * can then serve the same stream's next buffer at once, and other streams once the device has
 * passed that point. Nothing ever waits for the device. Once a pool has what a program needs, it
 * allocates and frees without a system call, a driver call or Java heap.
 *
 * <p><b>Other streams.</b> To use a buffer on another stream, first make that stream wait for an
 * event of the buffer's own stream; before closing, make the own stream wait for the other.
 *
 * <p><b>Graphs.</b> Buffers cannot be allocated for a stream that is being captured. Launching a
 * graph whose buffers were closed is refused.
 *
 * <p><b>Groups.</b> The memory of a buffer that is closed while the thread has an open group is
 * reused only after the group was launched or discarded.
 *
 * <p><b>Closed buffers.</b> The pool reuses buffer objects, but only after their works are done and
 * {@value #OLDEST} more buffers of the stream were closed; until then, closing twice is harmless.
 * Do not keep closed buffers.
 *
 * <p>Thread-safe; calls for the same stream take turns. Chunks of memory belong to the pool, which
 * takes more as needed and returns unused ones at {@link #trim} and {@link #close()}.
 */
public interface MemoryPool extends AutoCloseable {
  /** Buffers closed on a stream before a buffer object is reused. */
  int OLDEST = 64;

  /** Creates a pool with the {@linkplain MemoryPoolOptions#DEFAULTS default options}. */
  static MemoryPool create(Device device) {
    return create(device, MemoryPoolOptions.DEFAULTS);
  }

  /**
   * Creates a pool of a device's memory.
   *
   * @throws SystemErrorException if there is not enough memory for the initial size
   */
  static MemoryPool create(Device device, MemoryPoolOptions options) {
    return Provider.get(MemoryProvider.class).newPool(device, options);
  }

  /** The device this memory belongs to. */
  Device device();

  /**
   * Allocates a buffer for use on {@code stream}. It starts at a multiple of 256 bytes, or of 4096,
   * as NCCL's windows require, if {@code bytes} is a multiple of 4096 or at least 32 KiB. Its
   * contents are undefined, and earlier works of the stream may still use its memory: fill it
   * through the stream, or synchronise before blocking copies.
   *
   * @param bytes size, 0 or more
   * @param stream a stream of this device that is not being captured
   * @throws InvalidArgumentException if the size is negative, or the stream of another device
   * @throws InvalidUsageException if the pool or stream is closed, or the stream being captured
   * @throws SystemErrorException if there is not enough memory, or the pool's limit is reached
   * @throws NcclException if the stream has failed
   */
  DeviceBuffer allocate(long bytes, Stream stream);

  /**
   * Allocates a buffer of {@code count} elements; see {@link #allocate(long, Stream)}.
   *
   * @throws InvalidArgumentException if {@code count} is negative or the size exceeds
   *     2<sup>63</sup>−1 bytes
   */
  default DeviceBuffer allocate(DataType type, long count, Stream stream) {
    return allocate(Require.present(type, "type").byteSize(count), stream);
  }

  /**
   * Returns unused chunks to the device, until at most {@code keepBytes} are held or every chunk is
   * in use.
   *
   * @return bytes returned
   */
  long trim(long keepBytes);

  /** What the pool holds now, and the most it ever held. */
  MemoryPoolStatistics statistics();

  /**
   * Returns all memory. Closing twice does nothing.
   *
   * @throws InvalidUsageException if buffers are open, streams have not passed their last use, or
   *     chunks are registered with a communicator; nothing is freed
   */
  @Override
  void close();
}
