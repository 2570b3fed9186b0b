package io.nccl4j;

/**
 * Device memory for buffers that come and go, in the order of streams.
 *
 * <p>A buffer is allocated for a stream, and its {@link DeviceBuffer#close()} takes effect in that
 * stream's order: close it as soon as its last operation was called, without waiting. The memory
 * then serves the next buffer of the same stream at once, and other streams when the device has
 * passed that point. Nothing ever waits for the device. Once it has what a program needs, a pool
 * allocates and frees without a system call, without a call of the driver and without Java heap.
 *
 * <p><b>Other streams.</b> Who uses a buffer on another stream than its own lets that stream wait
 * for an event of the own one first, and lets the own stream wait for the other before closing.
 *
 * <p><b>Graphs.</b> Buffers are not allocated for a stream that is being captured. Launching a
 * graph whose buffers were closed is refused.
 *
 * <p><b>Groups.</b> A buffer that is closed while a group is open on the thread serves others when
 * the group has been launched or discarded.
 *
 * <p><b>Closed buffers.</b> The pool uses buffer objects again: not before their works are done and
 * {@value #OLDEST} more buffers of the stream were closed, so that closing twice is harmless for so
 * long. Don't keep closed buffers.
 *
 * <p>Thread-safe; calls for the same stream take turns. Chunks of memory belong to the pool, which
 * takes more when it needs to and gives back what is unused at {@link #trim} and {@link #close()}.
 */
public interface MemoryPool extends AutoCloseable {
  /** Buffers that are closed on a stream before an object is used again. */
  int OLDEST = 64;

  /** The device this memory belongs to. */
  Device device();

  /**
   * Allocates a buffer that is used on {@code stream}. It starts at a multiple of 256 bytes; at a
   * multiple of 4096, as {@link NcclCommunicator#registerWindow} asks, if {@code bytes} is one or
   * is 32 KiB or more. Its contents are undefined, and earlier works of the stream may still use
   * its memory: fill it by the stream, or synchronise before blocking copies.
   *
   * @param bytes size, 0 or more
   * @param stream a stream of this device, which is not being captured
   * @throws InvalidArgumentException if the size is negative, or the stream of another device
   * @throws InvalidUsageException if the pool or stream is closed, or the stream being captured
   * @throws SystemErrorException if the memory is not there, or the pool's limit is reached
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
    return allocate(Require.bytes(type, count), stream);
  }

  /**
   * Gives unused chunks back, until {@code keepBytes} or less are held or every chunk is in use.
   *
   * @return bytes given back
   */
  long trim(long keepBytes);

  /** What the pool holds now, and held at most. */
  MemoryPoolStatistics statistics();

  /**
   * Gives everything back. Closing twice does nothing.
   *
   * @throws InvalidUsageException if buffers are open, streams have not passed their last use, or
   *     chunks are registered with a communicator; nothing is freed then
   */
  @Override
  void close();
}
