package io.nccl4j;

/**
 * Converts floats to and from the types that Java has none for: {@link DataType#FLOAT16} and {@link
 * DataType#BFLOAT16} in shorts, {@link DataType#FLOAT8_E4M3} and {@link DataType#FLOAT8_E5M2} in
 * bytes.
 *
 * <p>Narrowing rounds to nearest even. What is too large becomes infinity in 16 bits, and the
 * largest finite value in 8 bits, as does infinity. Every NaN becomes the positive quiet NaN of the
 * type: {@code 0x7e00}, {@code 0x7fc0} or {@code 0x7f}. Widening is exact; the sign and payload of
 * a NaN are not specified. These are the conversions that reductions on the host backend use.
 *
 * <p>Methods may be called by any thread. All throw {@link InvalidArgumentException} if the type
 * does not fit the array, an array is null, or has no such elements.
 */
public final class Floats {
  private Floats() {}

  /**
   * Rounds floats to 16 bits.
   *
   * @param type {@code FLOAT16} or {@code BFLOAT16}
   * @return as many elements
   */
  public static short[] toShorts(float[] values, DataType type) {
    short[] narrow = new short[Require.present(values, "array").length];
    convert(values, 0, narrow, 0, values.length, type);
    return narrow;
  }

  /**
   * Rounds floats to 8 bits.
   *
   * @param type {@code FLOAT8_E4M3} or {@code FLOAT8_E5M2}
   * @return as many elements
   */
  public static byte[] toBytes(float[] values, DataType type) {
    byte[] narrow = new byte[Require.present(values, "array").length];
    convert(values, 0, narrow, 0, values.length, type);
    return narrow;
  }

  /**
   * The values of 16-bit floats.
   *
   * @param type {@code FLOAT16} or {@code BFLOAT16}
   * @return as many elements
   */
  public static float[] toFloats(short[] narrow, DataType type) {
    float[] values = new float[Require.present(narrow, "array").length];
    convert(narrow, 0, values, 0, narrow.length, type);
    return values;
  }

  /**
   * The values of 8-bit floats.
   *
   * @param type {@code FLOAT8_E4M3} or {@code FLOAT8_E5M2}
   * @return as many elements
   */
  public static float[] toFloats(byte[] narrow, DataType type) {
    float[] values = new float[Require.present(narrow, "array").length];
    convert(narrow, 0, values, 0, narrow.length, type);
    return values;
  }

  /**
   * Rounds {@code count} floats to 16 bits.
   *
   * @param fromIndex the first element to read
   * @param toIndex the first element to write
   * @param type {@code FLOAT16} or {@code BFLOAT16}
   */
  public static void convert(
      float[] from, int fromIndex, short[] to, int toIndex, int count, DataType type) {
    check(type, Short.BYTES);
    check(Require.present(from, "array").length, fromIndex, count);
    check(Require.present(to, "array").length, toIndex, count);
    Provider.get().narrow(type, from, fromIndex, to, toIndex, count);
  }

  /**
   * Rounds {@code count} floats to 8 bits.
   *
   * @param fromIndex the first element to read
   * @param toIndex the first element to write
   * @param type {@code FLOAT8_E4M3} or {@code FLOAT8_E5M2}
   */
  public static void convert(
      float[] from, int fromIndex, byte[] to, int toIndex, int count, DataType type) {
    check(type, Byte.BYTES);
    check(Require.present(from, "array").length, fromIndex, count);
    check(Require.present(to, "array").length, toIndex, count);
    Provider.get().narrow(type, from, fromIndex, to, toIndex, count);
  }

  /**
   * Gets the values of {@code count} 16-bit floats.
   *
   * @param fromIndex the first element to read
   * @param toIndex the first element to write
   * @param type {@code FLOAT16} or {@code BFLOAT16}
   */
  public static void convert(
      short[] from, int fromIndex, float[] to, int toIndex, int count, DataType type) {
    check(type, Short.BYTES);
    check(Require.present(from, "array").length, fromIndex, count);
    check(Require.present(to, "array").length, toIndex, count);
    Provider.get().widen(type, from, fromIndex, to, toIndex, count);
  }

  /**
   * Gets the values of {@code count} 8-bit floats.
   *
   * @param fromIndex the first element to read
   * @param toIndex the first element to write
   * @param type {@code FLOAT8_E4M3} or {@code FLOAT8_E5M2}
   */
  public static void convert(
      byte[] from, int fromIndex, float[] to, int toIndex, int count, DataType type) {
    check(type, Byte.BYTES);
    check(Require.present(from, "array").length, fromIndex, count);
    check(Require.present(to, "array").length, toIndex, count);
    Provider.get().widen(type, from, fromIndex, to, toIndex, count);
  }

  private static void check(DataType type, int bytes) {
    if (!Require.present(type, "type").isFloatingPoint() || type.byteSize() != bytes) {
      throw new InvalidArgumentException(
          type + " has no floats of " + 8 * bytes + " bits",
          bytes == Byte.BYTES
              ? "pass FLOAT8_E4M3 or FLOAT8_E5M2 for bytes"
              : "pass FLOAT16 or BFLOAT16 for shorts");
    }
  }

  private static void check(int length, int from, int count) {
    if (from < 0 || count < 0 || from > length - count) {
      throw new InvalidArgumentException(
          "elements " + from + " to " + ((long) from + count) + " of an array of " + length,
          "pass a first element and a number of elements that the array has");
    }
  }
}
