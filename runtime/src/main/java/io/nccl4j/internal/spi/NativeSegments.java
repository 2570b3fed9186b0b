package io.nccl4j.internal.spi;

import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/** What a caller's segment must be to serve as a buffer, or to be copied from or to one. */
public final class NativeSegments {
  private NativeSegments() {}

  /**
   * The segment; throws unless other threads may use its memory.
   *
   * @throws InvalidArgumentException if it is null, on the heap, or confined
   * @throws InvalidUsageException if its arena is closed
   */
  public static MemorySegment requireSharable(@Nullable MemorySegment segment) {
    if (segment == null) {
      throw new InvalidArgumentException("the segment is null", "pass native memory");
    }
    if (!segment.isNative()) {
      throw new InvalidArgumentException(
          "the segment lies in the Java heap",
          "allocate it from an arena, or use a buffer and copyFrom");
    }
    if (!segment.scope().isAlive()) {
      throw new InvalidUsageException(
          "the segment's arena is closed", "keep it open until the operations are complete");
    }
    if (!segment.isAccessibleBy(new Thread(() -> {}))) {
      throw new InvalidArgumentException(
          "the segment is confined to one thread",
          "allocate it from Arena.ofShared(), Arena.ofAuto() or Arena.global(): other threads move"
              + " the data");
    }
    return segment;
  }

  /**
   * The segment; throws unless this thread may read its memory and it fits.
   *
   * @param bytes size of the buffer
   * @throws InvalidArgumentException if it is null, larger, or confined to another thread
   * @throws InvalidUsageException if its arena is closed
   */
  public static MemorySegment requireReadable(@Nullable MemorySegment segment, long bytes) {
    if (segment == null) {
      throw new InvalidArgumentException("the segment is null", "pass a segment");
    }
    if (segment.byteSize() > bytes) {
      throw new InvalidArgumentException(
          "the segment has " + segment.byteSize() + " bytes, the buffer " + bytes,
          "copy a slice of the segment, or use a larger buffer");
    }
    if (!segment.scope().isAlive()) {
      throw new InvalidUsageException(
          "the segment's arena is closed", "keep it open until the copy is done");
    }
    if (!segment.isAccessibleBy(Thread.currentThread())) {
      throw new InvalidArgumentException(
          "the segment is confined to another thread",
          "copy on that thread, or allocate the segment from Arena.ofShared()");
    }
    return segment;
  }

  /** As {@link #requireReadable}; throws also if it is read-only. */
  public static MemorySegment requireWritable(@Nullable MemorySegment segment, long bytes) {
    MemorySegment readable = requireReadable(segment, bytes);
    if (readable.isReadOnly()) {
      throw new InvalidArgumentException("the target is read-only", "pass a writable one");
    }
    return readable;
  }
}
