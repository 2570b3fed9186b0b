package io.nccl4j;

import java.lang.foreign.MemorySegment;
import java.nio.Buffer;
import java.time.Duration;
import java.util.Optional;

/**
 * A range of device memory.
 *
 * <p>Data moves in and out by copies: the stream-ordered ones of {@link Stream}, and the blocking
 * ones here, which are not ordered with any stream: first synchronise the streams that use the
 * buffer. On the host backend, {@link #hostSegment()} is the memory itself. Contents are raw bytes;
 * a buffer has no element type.
 *
 * <p>Copies here start at the first byte of the buffer; those of a slice, at the slice's. All of
 * them throw {@link InvalidUsageException} if the buffer is closed, or if a peer of a failed
 * communicator may still write to it (see {@link #isQuiet()}), and copy nothing then. Copies to a
 * {@linkplain #isReadOnly() read-only} buffer throw {@link InvalidArgumentException}.
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
   * A part of this buffer, in elements; it shares the buffer's memory and its life.
   *
   * @param from first element of the part
   * @param count number of elements
   * @throws InvalidArgumentException if the part does not lie inside this buffer
   * @throws InvalidUsageException if the buffer is closed
   */
  default DeviceBuffer slice(DataType type, long from, long count) {
    DataType of = Require.present(type, "type");
    return slice(of.byteSize(from), of.byteSize(count));
  }

  /**
   * Copies a whole array to the start of this buffer and waits for it.
   *
   * @param array a {@code byte[]}, {@code short[]}, {@code int[]}, {@code long[]}, {@code float[]}
   *     or {@code double[]}
   * @throws InvalidArgumentException if it is any other object, or does not fit
   */
  default void copyFrom(Object array) {
    copyFrom(fitting("array", Segments.of(array)));
  }

  /**
   * Copies elements of an array to the start of this buffer and waits for it.
   *
   * @param array as in {@link #copyFrom(Object)}
   * @param from the first element to copy
   * @param count number of elements
   * @throws InvalidArgumentException if it is any other object, has no such elements, or they do
   *     not fit
   */
  default void copyFrom(Object array, int from, int count) {
    copyFrom(fitting("part of the array", Segments.of(array, from, count)));
  }

  /**
   * Copies a whole segment, on or off the heap, to the start of this buffer and waits for it.
   *
   * @throws InvalidArgumentException if it is null, larger than this buffer, or confined to another
   *     thread
   * @throws InvalidUsageException if its arena is closed
   */
  void copyFrom(MemorySegment source);

  /**
   * Copies the remaining elements of an NIO buffer, direct or not, to the start of this buffer and
   * waits for it; its position moves to its limit. Elements are stored in the machine's byte order,
   * whatever theirs is; a {@link java.nio.ByteBuffer}'s bytes are copied as they are.
   *
   * @throws InvalidArgumentException if it is null, larger than this buffer, or has characters; its
   *     position stays
   */
  default void copyFrom(Buffer source) {
    MemorySegment segment = fitting("source", Segments.of(source));
    if (Segments.isNative(source)) {
      copyFrom(segment);
    } else {
      MemorySegment swapped = Segments.between(segment);
      Segments.copySwapped(segment, swapped, source);
      copyFrom(swapped);
    }
    Buffer ignored = source.position(source.limit());
  }

  /**
   * Fills a whole array from the start of this buffer and waits for it.
   *
   * @param array a {@code byte[]}, {@code short[]}, {@code int[]}, {@code long[]}, {@code float[]}
   *     or {@code double[]}
   * @throws InvalidArgumentException if it is any other object, or larger than this buffer
   */
  default void copyTo(Object array) {
    copyTo(fitting("array", Segments.of(array)));
  }

  /**
   * Fills elements of an array from the start of this buffer and waits for it.
   *
   * @param array as in {@link #copyTo(Object)}
   * @param from the first element to fill
   * @param count number of elements
   * @throws InvalidArgumentException if it is any other object, has no such elements, or this
   *     buffer has fewer
   */
  default void copyTo(Object array, int from, int count) {
    copyTo(fitting("part of the array", Segments.of(array, from, count)));
  }

  /**
   * Fills a whole segment, on or off the heap, from the start of this buffer and waits for it.
   *
   * @throws InvalidArgumentException if it is null, read-only, larger than this buffer, or confined
   *     to another thread
   * @throws InvalidUsageException if its arena is closed
   */
  void copyTo(MemorySegment target);

  /**
   * Fills the remaining elements of an NIO buffer, direct or not, from the start of this buffer and
   * waits for it; its position moves to its limit. This buffer's elements are in the machine's byte
   * order, and get that of the target; a {@link java.nio.ByteBuffer}'s bytes are filled as they
   * are.
   *
   * @throws InvalidArgumentException if it is null, read-only, larger than this buffer, or has
   *     characters; its position stays
   */
  default void copyTo(Buffer target) {
    MemorySegment segment = fitting("target", Segments.of(target));
    if (Segments.isNative(target) || segment.isReadOnly()) {
      copyTo(segment);
    } else {
      MemorySegment swapped = Segments.between(segment);
      copyTo(swapped);
      Segments.copySwapped(swapped, segment, target);
    }
    Buffer ignored = target.position(target.limit());
  }

  /** The segment, which has no more bytes than this buffer. */
  private MemorySegment fitting(String what, MemorySegment segment) {
    if (segment.byteSize() > byteSize()) {
      throw new InvalidArgumentException(
          "the " + what + " has " + segment.byteSize() + " bytes, the buffer " + byteSize(),
          "copy fewer elements, or use a larger buffer");
    }
    return segment;
  }

  /**
   * The memory itself, without a copy, on the host backend: what is written there is what
   * operations read, also those of ranks in other processes. Any thread may use it, when no queued
   * operation writes what is read or reads what is written, as with {@link #copyFrom(Object)
   * copies}.
   *
   * <p>It is alive until this buffer is closed, or the buffer that this one is a slice of; an
   * access after that throws {@link IllegalStateException}. Over {@linkplain
   * Device#wrap(MemorySegment) wrapped} memory it is a part of the caller's segment and has the
   * life of that. A buffer cannot be closed while a call of the JDK, such as a file's read, works
   * with the segment.
   *
   * @return empty on the cuda backend, and for buffers of {@linkplain io.nccl4j.memory.MemoryPool
   *     pools} where the JVM denies native access
   * @throws InvalidUsageException if this buffer is closed, or a peer of a failed communicator may
   *     still write to it
   */
  Optional<MemorySegment> hostSegment();

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

  /**
   * Whether this buffer, or the buffer it is a slice of, {@linkplain Device#wrap(MemorySegment)
   * wraps} a read-only segment. Operations may send from it; to receive into it, or to copy to or
   * fill it, is refused with {@link InvalidArgumentException}.
   */
  boolean isReadOnly();

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
   *     io.nccl4j.cuda.NcclCommunicator#register}), or a call of the JDK works with its {@link
   *     #hostSegment()}; nothing is closed
   */
  @Override
  void close();
}
