package io.nccl4j.internal.spi;

import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/** The scalar of a scaled sum in memory, as one element of the operation's type. */
public final class Scalars {
  private Scalars() {}

  /**
   * Reads one element: the bits of a double for floating-point types, otherwise the integer.
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

  /** Whether a type has the scalar of {@code op}: all but integer types round it. */
  public static boolean has(DataType type, ReduceOp op) {
    long scalar = op.integerScalar();
    boolean integer = scalar == op.scalar();
    return switch (type) {
      case INT8 -> integer && scalar == (byte) scalar;
      case UINT8 -> integer && scalar == (scalar & 0xff);
      case INT32 -> integer && scalar == (int) scalar;
      case UINT32 -> integer && scalar == (scalar & 0xffffffffL);
      case INT64 -> integer;
      case UINT64 -> integer && scalar >= 0;
      default -> true;
    };
  }

  /** The scalar of {@code op} as {@link #read} gives it: rounded to the type. */
  public static long of(DataType type, ReduceOp op) {
    float scalar = (float) op.scalar();
    return switch (type) {
      case INT8, UINT8, INT32, UINT32, INT64, UINT64 -> op.integerScalar();
      case FLOAT64 -> bits(op.scalar());
      case FLOAT32 -> bits(scalar);
      case FLOAT16 -> bits(Float.float16ToFloat(SmallFloats.toFloat16(scalar)));
      case BFLOAT16 -> bits(SmallFloats.fromBfloat16(SmallFloats.toBfloat16(scalar)));
      case FLOAT8_E4M3 -> bits(rounded(SmallFloats.Float8.E4M3, scalar));
      case FLOAT8_E5M2 -> bits(rounded(SmallFloats.Float8.E5M2, scalar));
    };
  }

  private static float rounded(SmallFloats.Float8 type, float scalar) {
    return type.toFloat(type.fromFloat(scalar));
  }

  /** Writes the scalar of {@code op} at the start of a segment. */
  public static void write(MemorySegment segment, DataType type, ReduceOp op) {
    switch (type) {
      case INT8, UINT8 -> segment.set(ValueLayout.JAVA_BYTE, 0, (byte) op.integerScalar());
      case INT32, UINT32 -> segment.set(ValueLayout.JAVA_INT, 0, (int) op.integerScalar());
      case INT64, UINT64 -> segment.set(ValueLayout.JAVA_LONG, 0, op.integerScalar());
      case FLOAT16 ->
          segment.set(ValueLayout.JAVA_SHORT, 0, SmallFloats.toFloat16((float) op.scalar()));
      case BFLOAT16 ->
          segment.set(ValueLayout.JAVA_SHORT, 0, SmallFloats.toBfloat16((float) op.scalar()));
      case FLOAT32 -> segment.set(ValueLayout.JAVA_FLOAT, 0, (float) op.scalar());
      case FLOAT64 -> segment.set(ValueLayout.JAVA_DOUBLE, 0, op.scalar());
      case FLOAT8_E4M3 ->
          segment.set(
              ValueLayout.JAVA_BYTE, 0, SmallFloats.Float8.E4M3.fromFloat((float) op.scalar()));
      case FLOAT8_E5M2 ->
          segment.set(
              ValueLayout.JAVA_BYTE, 0, SmallFloats.Float8.E5M2.fromFloat((float) op.scalar()));
    }
  }

  private static long bits(double value) {
    return Double.doubleToRawLongBits(value);
  }
}
