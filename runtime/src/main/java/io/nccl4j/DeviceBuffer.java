package io.nccl4j;

import java.time.Duration;

/**
 * A range of device memory.
 *
 * <p>Data moves in and out only by copies: the stream-ordered ones of {@link Stream}, and the
 * blocking ones here, which are not ordered with any stream: first synchronise the streams that use
 * the buffer. Contents are raw bytes; a buffer has no element type.
 *
 * <p>A buffer may be shared between threads. {@link #close()} frees the memory of an allocated
 * buffer; a slice or a wrapped buffer only becomes unusable. It never waits.
 */
public interface DeviceBuffer extends AutoCloseable {
  /** The device this memory belongs to. */
  Device device();

  /** Address on the device: a {@code CUdeviceptr}, or the virtual address on the host backend. */
  long address();

  /** Size in bytes. */
  long byteSize();

  /**
   * A part of this buffer, sharing its memory and its life.
   *
   * @param byteOffset first byte of the part
   * @param byteSize size of the part
   * @throws InvalidArgumentException if the part does not lie inside this buffer
   */
  DeviceBuffer slice(long byteOffset, long byteSize);

  /** The part from {@code byteOffset} to the end. */
  default DeviceBuffer slice(long byteOffset) {
    return slice(byteOffset, byteSize() - byteOffset);
  }

  /**
   * Copies a whole array to the start of this buffer and waits for it.
   *
   * @param array a {@code byte[]}, {@code short[]}, {@code int[]}, {@code long[]}, {@code float[]}
   *     or {@code double[]}
   * @throws InvalidArgumentException if it is any other object, or does not fit
   */
  void copyFrom(Object array);

  /**
   * Fills a whole array from the start of this buffer and waits for it.
   *
   * @param array a {@code byte[]}, {@code short[]}, {@code int[]}, {@code long[]}, {@code float[]}
   *     or {@code double[]}
   * @throws InvalidArgumentException if it is any other object, or larger than this buffer
   */
  void copyTo(Object array);

  /** All whole floats of this buffer, copied. */
  default float[] toFloats() {
    float[] floats = new float[elements(Float.BYTES)];
    copyTo(floats);
    return floats;
  }

  /** All whole doubles of this buffer, copied. */
  default double[] toDoubles() {
    double[] doubles = new double[elements(Double.BYTES)];
    copyTo(doubles);
    return doubles;
  }

  /** All whole ints of this buffer, copied. */
  default int[] toInts() {
    int[] ints = new int[elements(Integer.BYTES)];
    copyTo(ints);
    return ints;
  }

  /** All whole longs of this buffer, copied. */
  default long[] toLongs() {
    long[] longs = new long[elements(Long.BYTES)];
    copyTo(longs);
    return longs;
  }

  /** All bytes of this buffer, copied. */
  default byte[] toBytes() {
    byte[] bytes = new byte[elements(1)];
    copyTo(bytes);
    return bytes;
  }

  private int elements(int elementBytes) {
    long elements = byteSize() / elementBytes;
    if (elements > Integer.MAX_VALUE - 8) {
      throw new InvalidArgumentException(
          byteSize() + " bytes do not fit into one array", "copy slices of the buffer");
    }
    return (int) elements;
  }

  /**
   * Whether nothing writes to this buffer any more: no unfinished operation of this process uses
   * it, and no peer can still write to it for a failed communicator.
   *
   * <p>When a communicator fails or is aborted in the middle of an operation, a peer that is slow
   * or stopped may finish its current step later. Until it has seen the failure, left or died, the
   * buffers that the operation writes to are not quiet: their contents may change, and using them
   * is refused with {@link InvalidUsageException}. Closing them is allowed; their memory is freed
   * once it is quiet. A running peer sees a failure within some milliseconds.
   *
   * <p>On the {@code cuda} backend this covers only this process's operations, since NCCL does not
   * say when the peers of an aborted communicator have ended theirs.
   */
  boolean isQuiet();

  /**
   * Waits until this buffer {@linkplain #isQuiet() is quiet}.
   *
   * @param timeout the longest wait, 0 or more
   * @return false if it was not quiet in time
   * @throws InvalidArgumentException if the timeout is null or negative
   * @throws InterruptedException if this thread is interrupted while it waits
   */
  default boolean awaitQuiet(Duration timeout) throws InterruptedException {
    if (timeout == null || timeout.isNegative()) {
      throw new InvalidArgumentException(
          "awaitQuiet: the timeout is " + timeout, "pass a duration of 0 or more");
    }
    long start = System.nanoTime();
    while (!isQuiet()) {
      if (Duration.ofNanos(System.nanoTime() - start).compareTo(timeout) >= 0) {
        return false;
      }
      Thread.sleep(1);
    }
    return true;
  }

  /** Whether this buffer, or the buffer it is a slice of, has been closed. */
  boolean isClosed();

  /**
   * Closes the buffer and its slices: calls refuse them from then on. Closing twice does nothing.
   *
   * <p>The memory is freed when nothing uses it any more. Earlier operations, copies and launches
   * of graphs, including those of an open group, go on with it; after they end, it is freed when
   * memory is next allocated, closed or reported. So a buffer may be closed right after its last
   * use, also when an exception leaves its block. The memory of a wrapped buffer belongs to the
   * caller, who must keep it until the operations are complete.
   *
   * @throws InvalidUsageException if it is registered with a communicator (see {@link
   *     io.nccl4j.cuda.NcclCommunicator#register}); nothing is closed
   */
  @Override
  void close();
}
