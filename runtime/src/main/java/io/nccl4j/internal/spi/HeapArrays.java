package io.nccl4j.internal.spi;

import io.nccl4j.InvalidArgumentException;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/** The arrays that {@link io.nccl4j.DeviceBuffer} copies from and to. */
public final class HeapArrays {
  private HeapArrays() {}

  /**
   * A whole array as a segment, for a buffer of {@code bytes} bytes.
   *
   * @throws InvalidArgumentException if it is no array of numbers, or larger than the buffer
   */
  public static MemorySegment fitting(@Nullable Object array, long bytes) {
    MemorySegment segment = segment(array);
    if (segment.byteSize() > bytes) {
      throw new InvalidArgumentException(
          "the array has " + segment.byteSize() + " bytes, the buffer " + bytes,
          "use a smaller array or a larger buffer");
    }
    return segment;
  }

  /**
   * A whole array as a segment.
   *
   * @throws InvalidArgumentException if it is no array of numbers
   */
  private static MemorySegment segment(@Nullable Object array) {
    return switch (array) {
      case byte[] a -> MemorySegment.ofArray(a);
      case short[] a -> MemorySegment.ofArray(a);
      case int[] a -> MemorySegment.ofArray(a);
      case long[] a -> MemorySegment.ofArray(a);
      case float[] a -> MemorySegment.ofArray(a);
      case double[] a -> MemorySegment.ofArray(a);
      case null ->
          throw new InvalidArgumentException("the array is null", "pass an array of numbers");
      default ->
          throw new InvalidArgumentException(
              "cannot copy a " + array.getClass().getTypeName(),
              "pass a byte[], short[], int[], long[], float[] or double[]");
    };
  }
}
