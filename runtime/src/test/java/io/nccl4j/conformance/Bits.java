package io.nccl4j.conformance;

import io.nccl4j.DataType;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;

/** The element types by their bit layouts, with rounding to nearest even; nothing here is fast. */
final class Bits {
  private static final VarHandle SHORT = view(short[].class);
  private static final VarHandle INT = view(int[].class);
  private static final VarHandle LONG = view(long[].class);

  /** Decoded values of all patterns of the types of at most 16 bits. */
  private static final float[][] DECODED = decodedTables();

  private Bits() {}

  private static VarHandle view(Class<?> arrayType) {
    return MethodHandles.byteArrayViewVarHandle(arrayType, ByteOrder.nativeOrder());
  }

  /** The element's bits, zero-extended. */
  static long get(byte[] bytes, int element, DataType type) {
    return switch (type.byteSize()) {
      case 1 -> bytes[element] & 0xffL;
      case 2 -> (short) SHORT.get(bytes, element * 2) & 0xffffL;
      case 4 -> (int) INT.get(bytes, element * 4) & 0xffffffffL;
      default -> (long) LONG.get(bytes, element * 8);
    };
  }

  /** Stores the low bits of {@code raw}. */
  static void put(byte[] bytes, int element, DataType type, long raw) {
    switch (type.byteSize()) {
      case 1 -> bytes[element] = (byte) raw;
      case 2 -> SHORT.set(bytes, element * 2, (short) raw);
      case 4 -> INT.set(bytes, element * 4, (int) raw);
      default -> LONG.set(bytes, element * 8, raw);
    }
  }

  /**
   * An integer element's value: sign-extended for signed types, zero-extended for unsigned ones.
   */
  static long toInteger(long raw, DataType type) {
    int unused = 64 - 8 * type.byteSize();
    return type.isSignedInteger() ? raw << unused >> unused : raw << unused >>> unused;
  }

  /** The value of a float of at most 32 bits. */
  static float toFloat(long raw, DataType type) {
    return type == DataType.FLOAT32
        ? Float.intBitsToFloat((int) raw)
        : DECODED[type.ordinal()][(int) raw];
  }

  /** The bits of the nearest element of a float type of at most 32 bits, ties to even. */
  static long ofFloat(float value, DataType type) {
    return switch (type) {
      case FLOAT32 -> Float.floatToIntBits(value) & 0xffffffffL;
      case FLOAT16 -> round(value, 5, 10, 0x7c00, 0x7e00);
      case BFLOAT16 -> round(value, 8, 7, 0x7f80, 0x7fc0);
      case FLOAT8_E4M3 -> round(value, 4, 3, 0x7e, 0x7f);
      case FLOAT8_E5M2 -> round(value, 5, 2, 0x7b, 0x7f);
      default -> throw new AssertionError(type);
    };
  }

  /** Whether the bits are a NaN of a float type. */
  static boolean isNan(long raw, DataType type) {
    if (!type.isFloatingPoint()) {
      return false;
    }
    return type == DataType.FLOAT64
        ? Double.isNaN(Double.longBitsToDouble(raw))
        : Float.isNaN(toFloat(raw, type));
  }

  /**
   * Rounds to a float of {@code 1 + exponentBits + fractionBits} bits.
   *
   * @param largest what is too large becomes: infinity, or the largest value of saturating types
   */
  private static long round(
      float value, int exponentBits, int fractionBits, int largest, int nanBits) {
    if (Float.isNaN(value)) {
      return nanBits;
    }
    int bits = Float.floatToRawIntBits(value);
    long sign = (bits >>> 31) << (exponentBits + fractionBits);
    int exponent = bits >>> 23 & 0xff;
    int significand = bits & 0x7fffff;
    if (exponent == 0xff) {
      return sign | largest;
    }
    if (exponent == 0) {
      if (significand == 0) {
        return sign;
      }
      int up = Integer.numberOfLeadingZeros(significand) - 8;
      significand <<= up;
      exponent = 1 - up;
    } else {
      significand |= 0x800000;
    }
    int newExponent = exponent - 127 + (1 << (exponentBits - 1)) - 1;
    int shift = 23 - fractionBits + Math.max(0, 1 - newExponent);
    if (shift > 24) {
      return sign;
    }
    int rounded = significand >>> shift;
    int rest = significand & ((1 << shift) - 1);
    int half = 1 << (shift - 1);
    if (rest > half || rest == half && (rounded & 1) == 1) {
      rounded++;
    }
    // A carry out of the fraction increments the exponent by itself.
    long magnitude = ((long) Math.max(0, newExponent - 1) << fractionBits) + rounded;
    return sign | Math.min(magnitude, largest);
  }

  private static float[][] decodedTables() {
    float[][] tables = new float[DataType.values().length][];
    for (DataType type : DataType.values()) {
      if (type.isFloatingPoint() && type.byteSize() <= 2) {
        float[] table = new float[1 << 8 * type.byteSize()];
        for (int raw = 0; raw < table.length; raw++) {
          table[raw] = decode(raw, type);
        }
        tables[type.ordinal()] = table;
      }
    }
    return tables;
  }

  private static float decode(int raw, DataType type) {
    int fractionBits =
        switch (type) {
          case FLOAT16 -> 10;
          case BFLOAT16 -> 7;
          case FLOAT8_E4M3 -> 3;
          default -> 2;
        };
    int exponentBits = 8 * type.byteSize() - 1 - fractionBits;
    int largestExponent = (1 << exponentBits) - 1;
    int bias = largestExponent >> 1;
    int exponent = raw >> fractionBits & largestExponent;
    int fraction = raw & ((1 << fractionBits) - 1);
    float sign = raw >> (exponentBits + fractionBits) == 0 ? 1 : -1;
    if (exponent == largestExponent && type == DataType.FLOAT8_E4M3 && fraction == 7) {
      return Float.NaN;
    }
    if (exponent == largestExponent && type != DataType.FLOAT8_E4M3) {
      return fraction == 0 ? sign * Float.POSITIVE_INFINITY : Float.NaN;
    }
    int significand = exponent == 0 ? fraction : fraction | 1 << fractionBits;
    return sign
        * (float) Math.scalb((double) significand, Math.max(exponent, 1) - bias - fractionBits);
  }
}
