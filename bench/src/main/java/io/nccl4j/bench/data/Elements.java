package io.nccl4j.bench.data;

import io.nccl4j.DataType;

/**
 * How elements of the twelve types look in memory. Elements travel as raw bits in primitive arrays
 * of their width: {@code byte[]}, {@code short[]}, {@code int[]} or {@code long[]}.
 */
final class Elements {
  private Elements() {}

  /** An array for {@code count} elements. */
  static Object newArray(DataType type, int count) {
    return switch (type.byteSize()) {
      case 1 -> new byte[count];
      case 2 -> new short[count];
      case 4 -> new int[count];
      default -> new long[count];
    };
  }

  /** One element of such an array; bits above its width are copies of the highest. */
  static long bits(Object array, int index) {
    return switch (array) {
      case byte[] bytes -> bytes[index];
      case short[] shorts -> shorts[index];
      case int[] ints -> ints[index];
      default -> ((long[]) array)[index];
    };
  }

  /** Bits that count towards the value of a significand, the implicit one included. */
  static int precision(DataType type) {
    return switch (type) {
      case FLOAT16 -> 11;
      case FLOAT32 -> 24;
      case FLOAT64 -> 53;
      case BFLOAT16 -> 8;
      case FLOAT8_E4M3 -> 4;
      case FLOAT8_E5M2 -> 3;
      default -> throw new IllegalArgumentException(type + " has no significand");
    };
  }

  /** Bits of the exponent field. */
  static int exponentBits(DataType type) {
    return 8 * type.byteSize() - precision(type);
  }

  /** Keeps the low bits that an element has. */
  static long mask(DataType type) {
    return -1L >>> (64 - 8 * type.byteSize());
  }

  /** The value of an integer element, extended to 64 bits by sign or by zeros. */
  static long extend(DataType type, long bits) {
    int unused = 64 - 8 * type.byteSize();
    return type.isUnsignedInteger() ? bits << unused >>> unused : bits << unused >> unused;
  }

  /** The value of a floating-point element, exactly. */
  static double decode(DataType type, long bits) {
    return switch (type) {
      case FLOAT16 -> Float.float16ToFloat((short) bits);
      case FLOAT32 -> Float.intBitsToFloat((int) bits);
      case FLOAT64 -> Double.longBitsToDouble(bits);
      case BFLOAT16 -> Float.intBitsToFloat((int) bits << 16);
      case FLOAT8_E4M3 -> decodeE4m3((int) bits & 0xff);
      case FLOAT8_E5M2 -> Float.float16ToFloat((short) (bits << 8));
      default -> throw new IllegalArgumentException(type + " is not a floating-point type");
    };
  }

  /**
   * The bits of a value, rounded once to nearest even; 8-bit floats saturate. For every type but
   * double the value must be a float, or it would be rounded twice.
   */
  static long encode(DataType type, double value) {
    float single = (float) value;
    return switch (type) {
      case FLOAT16 -> Float.floatToFloat16(single) & 0xffff;
      case FLOAT32 -> Float.floatToRawIntBits(single) & 0xffffffffL;
      case FLOAT64 -> Double.doubleToRawLongBits(value);
      case BFLOAT16 -> encodeBfloat16(single);
      case FLOAT8_E4M3 -> encode8(single, 4, -6, 448f, 0x7e, 0x7f);
      case FLOAT8_E5M2 -> encode8(single, 3, -14, 57344f, 0x7b, 0x7f);
      default -> throw new IllegalArgumentException(type + " is not a floating-point type");
    };
  }

  /** How many representable values lie between two floating-point elements; NaN counts by bits. */
  static long ulps(DataType type, long a, long b) {
    return Math.abs(ordered(type, a) - ordered(type, b));
  }

  // Sign and magnitude to a line on which neighbours differ by 1; both zeros are 0.
  private static long ordered(DataType type, long bits) {
    int unused = 64 - 8 * type.byteSize();
    long magnitude = bits << (unused + 1) >>> (unused + 1);
    return bits << unused < 0 ? -magnitude : magnitude;
  }

  private static double decodeE4m3(int bits) {
    int exponent = bits >> 3 & 15;
    int fraction = bits & 7;
    if (exponent == 15 && fraction == 7) {
      return Double.NaN;
    }
    double magnitude =
        exponent == 0
            ? Math.scalb((double) fraction, -9)
            : Math.scalb((double) (8 + fraction), exponent - 10);
    return bits >> 7 == 0 ? magnitude : -magnitude;
  }

  private static long encodeBfloat16(float value) {
    int bits = Float.floatToRawIntBits(value);
    if (Float.isNaN(value)) {
      return bits >>> 16 | 0x40;
    }
    return (bits + 0x7fff + (bits >>> 16 & 1)) >>> 16;
  }

  private static long encode8(
      float value, int precision, int minExponent, float max, int maxBits, int nan) {
    int sign = Float.floatToRawIntBits(value) >>> 31 << 7;
    if (Float.isNaN(value)) {
      return sign | nan;
    }
    float magnitude = Math.abs(value);
    int exponent = Math.max(Math.getExponent(magnitude), minExponent);
    // The spacing of representable values here is 2^(exponent - precision + 1); rint rounds to
    // even.
    double spacings = Math.rint(Math.scalb((double) magnitude, precision - 1 - exponent));
    double rounded = Math.scalb(spacings, exponent - precision + 1);
    if (rounded >= max) {
      return sign | maxBits;
    }
    // Counting spacings from the field's start carries into the exponent by itself.
    long units = (long) spacings + ((long) (exponent - minExponent) << (precision - 1));
    return sign | units;
  }
}
