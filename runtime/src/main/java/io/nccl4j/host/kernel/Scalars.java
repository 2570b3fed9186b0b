package io.nccl4j.host.kernel;

import io.nccl4j.DataType;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/** Reads the scalar of a scaled sum from memory. */
public final class Scalars {
  private Scalars() {}

  /**
   * One element, as {@link FoldKernel} takes scalars: the bits of a double for floating-point
   * types, otherwise the integer.
   *
   * @param offset in bytes, a multiple of the element size
   */
  public static long read(MemorySegment segment, long offset, DataType type) {
    return switch (type) {
      case INT8 -> segment.get(ValueLayout.JAVA_BYTE, offset);
      case UINT8 -> segment.get(ValueLayout.JAVA_BYTE, offset) & 0xffL;
      case INT32 -> segment.get(ValueLayout.JAVA_INT, offset);
      case UINT32 -> segment.get(ValueLayout.JAVA_INT, offset) & 0xffffffffL;
      case INT64, UINT64 -> segment.get(ValueLayout.JAVA_LONG, offset);
      case FLOAT16 -> bits(Float.float16ToFloat(segment.get(ValueLayout.JAVA_SHORT, offset)));
      case BFLOAT16 -> bits(SmallFloats.fromBfloat16(segment.get(ValueLayout.JAVA_SHORT, offset)));
      case FLOAT32 -> bits(segment.get(ValueLayout.JAVA_FLOAT, offset));
      case FLOAT64 -> bits(segment.get(ValueLayout.JAVA_DOUBLE, offset));
      case FLOAT8_E4M3 ->
          bits(SmallFloats.Float8.E4M3.toFloat(segment.get(ValueLayout.JAVA_BYTE, offset)));
      case FLOAT8_E5M2 ->
          bits(SmallFloats.Float8.E5M2.toFloat(segment.get(ValueLayout.JAVA_BYTE, offset)));
    };
  }

  private static long bits(double value) {
    return Double.doubleToRawLongBits(value);
  }
}
