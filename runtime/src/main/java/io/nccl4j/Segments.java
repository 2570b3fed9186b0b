package io.nccl4j;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.Buffer;
import java.nio.ByteOrder;
import java.nio.CharBuffer;
import java.nio.DoubleBuffer;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.nio.LongBuffer;
import java.nio.ShortBuffer;
import org.jspecify.annotations.Nullable;

/** Arrays and NIO buffers as the segments that {@link DeviceBuffer} copies. */
final class Segments {
  private Segments() {}

  /**
   * A whole array.
   *
   * @throws InvalidArgumentException if it is no array of numbers
   */
  static MemorySegment of(@Nullable Object array) {
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

  /**
   * A part of an array, in elements.
   *
   * @throws InvalidArgumentException if it is no array of numbers, or the part is not inside
   */
  static MemorySegment of(@Nullable Object array, int from, int count) {
    MemorySegment whole = of(array);
    int bytes = elementBytes(array);
    if (from < 0 || count < 0 || from > whole.byteSize() / bytes - count) {
      throw new InvalidArgumentException(
          "elements "
              + from
              + " to "
              + ((long) from + count)
              + " of an array of "
              + whole.byteSize() / bytes,
          "pass a first element and a number of elements that the array has");
    }
    return whole.asSlice((long) from * bytes, (long) count * bytes);
  }

  private static int elementBytes(@Nullable Object array) {
    return switch (array) {
      case byte[] ignored -> Byte.BYTES;
      case short[] ignored -> Short.BYTES;
      case int[] ignored -> Integer.BYTES;
      case float[] ignored -> Float.BYTES;
      case null, default -> Long.BYTES;
    };
  }

  /**
   * The remaining elements of a buffer, in whatever order their bytes are.
   *
   * @throws InvalidArgumentException if it is null, or a buffer of characters
   */
  static MemorySegment of(@Nullable Buffer buffer) {
    if (buffer == null || buffer instanceof CharBuffer) {
      throw new InvalidArgumentException(
          buffer == null ? "the buffer is null" : "cannot copy a buffer of characters",
          "pass a buffer of bytes, shorts, ints, longs, floats or doubles");
    }
    return MemorySegment.ofBuffer(buffer);
  }

  /** Whether the elements of a buffer have the bytes in the order of the machine. */
  static boolean isNative(Buffer buffer) {
    ByteOrder order =
        switch (buffer) {
          case ShortBuffer b -> b.order();
          case IntBuffer b -> b.order();
          case LongBuffer b -> b.order();
          case FloatBuffer b -> b.order();
          case DoubleBuffer b -> b.order();
          default -> ByteOrder.nativeOrder();
        };
    return order == ByteOrder.nativeOrder();
  }

  /** Copies all elements, each with its bytes in the opposite order; the sizes are the same. */
  static void copySwapped(MemorySegment from, MemorySegment to, Buffer of) {
    ValueLayout layout =
        switch (of) {
          case ShortBuffer ignored -> ValueLayout.JAVA_SHORT_UNALIGNED;
          case IntBuffer ignored -> ValueLayout.JAVA_INT_UNALIGNED;
          case FloatBuffer ignored -> ValueLayout.JAVA_INT_UNALIGNED;
          case LongBuffer ignored -> ValueLayout.JAVA_LONG_UNALIGNED;
          case DoubleBuffer ignored -> ValueLayout.JAVA_LONG_UNALIGNED;
          default -> ValueLayout.JAVA_BYTE;
        };
    ValueLayout little = layout.withOrder(ByteOrder.LITTLE_ENDIAN);
    ValueLayout big = layout.withOrder(ByteOrder.BIG_ENDIAN);
    MemorySegment.copy(from, little, 0, to, big, 0, from.byteSize() / layout.byteSize());
  }

  /** An array of bytes that stands between, where bytes have to change their order. */
  static MemorySegment between(MemorySegment like) {
    return MemorySegment.ofArray(new byte[Math.toIntExact(like.byteSize())]);
  }
}
