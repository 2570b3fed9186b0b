package io.nccl4j.internal.spi;

import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/** What a caller's segment must be to serve as a buffer. */
public final class NativeSegments {
  private NativeSegments() {}

  /**
   * The segment; throws unless other threads may read and write its memory.
   *
   * @throws InvalidArgumentException if it is null, on the heap, read-only or confined
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
    if (segment.isReadOnly()) {
      throw new InvalidArgumentException("the segment is read-only", "pass a writable segment");
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
}
