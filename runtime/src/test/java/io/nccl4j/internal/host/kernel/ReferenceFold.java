package io.nccl4j.internal.host.kernel;

import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import java.math.BigInteger;
import java.util.Arrays;
import org.jspecify.annotations.Nullable;

/**
 * The arithmetic contract by definition, one element at a time, on raw element bits: integers as
 * {@link BigInteger}, small floats by looking through the values that the format has.
 */
final class ReferenceFold {
  private ReferenceFold() {}

  /** A floating format of up to 16 bits: the values of its non-negative codes, in order. */
  static final class Format {
    final int bits;
    final int nan;
    final int codes;
    final int largestCode;
    final boolean saturates;

    /** Values of codes 0 … codes − 1; what would follow the largest finite one is last. */
    final double[] values;

    Format(int bits, int fractionBits, int bias, int largestCode, int nan, boolean saturates) {
      this.bits = bits;
      this.nan = nan;
      this.largestCode = largestCode;
      this.saturates = saturates;
      codes = largestCode + 2;
      values = new double[codes];
      for (int code = 0; code < codes; code++) {
        int exponent = code >> fractionBits;
        double fraction = (code & (1 << fractionBits) - 1) / (double) (1 << fractionBits);
        values[code] =
            exponent == 0
                ? fraction * Math.pow(2, 1 - bias)
                : (1 + fraction) * Math.pow(2, exponent - bias);
      }
    }

    float decode(int raw) {
      int code = raw & (1 << bits - 1) - 1;
      boolean negative = (raw >> bits - 1 & 1) != 0;
      double magnitude;
      if (code <= largestCode) {
        magnitude = values[code];
      } else {
        boolean infinite = code == largestCode + 1 && bits != 8 || bits == 8 && code == 0x7c;
        magnitude = infinite ? Double.POSITIVE_INFINITY : Double.NaN;
      }
      return (float) (negative ? -magnitude : magnitude);
    }

    int encode(float value) {
      if (Float.isNaN(value)) {
        return nan;
      }
      double magnitude = Math.abs((double) value);
      boolean negative = value < 0 || value == 0 && 1 / value < 0;
      int found = Arrays.binarySearch(values, magnitude);
      int code = found;
      if (found < 0) {
        int above = -found - 1;
        if (above == codes) {
          code = codes - 1;
        } else {
          double low = magnitude - values[above - 1];
          double high = values[above] - magnitude;
          boolean even = (above & 1) == 0;
          code = high < low || high == low && even ? above : above - 1;
        }
      }
      if (code > largestCode && saturates) {
        code = largestCode;
      }
      return negative ? code | 1 << bits - 1 : code;
    }
  }

  static final Format FLOAT16 = new Format(16, 10, 15, 0x7bff, 0x7e00, false);
  static final Format BFLOAT16 = new Format(16, 7, 127, 0x7f7f, 0x7fc0, false);
  static final Format E4M3 = new Format(8, 3, 7, 0x7e, 0x7f, true);
  static final Format E5M2 = new Format(8, 2, 15, 0x7b, 0x7f, true);

  static @Nullable Format format(DataType type) {
    return switch (type) {
      case FLOAT16 -> FLOAT16;
      case BFLOAT16 -> BFLOAT16;
      case FLOAT8_E4M3 -> E4M3;
      case FLOAT8_E5M2 -> E5M2;
      default -> null;
    };
  }

  /** Folds the raw elements of one position; the upper bits of what it returns are undefined. */
  static long fold(DataType type, ReduceOp.Kind kind, long[] raw, long @Nullable [] scalars) {
    if (!type.isFloatingPoint()) {
      return foldIntegers(type, kind, raw, scalars);
    }
    if (type == DataType.FLOAT64) {
      double[] values = new double[raw.length];
      for (int k = 0; k < raw.length; k++) {
        values[k] = Double.longBitsToDouble(raw[k]);
      }
      return Double.doubleToLongBits(foldDoubles(kind, values, scalars));
    }
    Format format = format(type);
    float[] values = new float[raw.length];
    for (int k = 0; k < raw.length; k++) {
      values[k] = format == null ? Float.intBitsToFloat((int) raw[k]) : format.decode((int) raw[k]);
    }
    float result = foldFloats(kind, values, scalars);
    return format == null ? Float.floatToIntBits(result) : format.encode(result);
  }

  private static float foldFloats(ReduceOp.Kind kind, float[] values, long @Nullable [] scalars) {
    float result = values[0];
    if (scalars != null) {
      result *= (float) Double.longBitsToDouble(scalars[0]);
    }
    for (int k = 1; k < values.length; k++) {
      float value = values[k];
      switch (kind) {
        case PROD -> result *= value;
        case MIN, MAX -> {
          if (Float.isNaN(result)) {
            result = value;
          } else if (!Float.isNaN(value)) {
            int order = Float.compare(value, result);
            result = (kind == ReduceOp.Kind.MIN ? order < 0 : order > 0) ? value : result;
          }
        }
        case PRE_MUL_SUM -> {
          if (scalars != null) {
            value *= (float) Double.longBitsToDouble(scalars[k]);
          }
          result += value;
        }
        default -> result += value;
      }
    }
    return kind == ReduceOp.Kind.AVG ? result * (1f / values.length) : result;
  }

  private static double foldDoubles(
      ReduceOp.Kind kind, double[] values, long @Nullable [] scalars) {
    double result = values[0];
    if (scalars != null) {
      result *= Double.longBitsToDouble(scalars[0]);
    }
    for (int k = 1; k < values.length; k++) {
      double value = values[k];
      switch (kind) {
        case PROD -> result *= value;
        case MIN, MAX -> {
          if (Double.isNaN(result)) {
            result = value;
          } else if (!Double.isNaN(value)) {
            int order = Double.compare(value, result);
            result = (kind == ReduceOp.Kind.MIN ? order < 0 : order > 0) ? value : result;
          }
        }
        case PRE_MUL_SUM -> {
          if (scalars != null) {
            value *= Double.longBitsToDouble(scalars[k]);
          }
          result += value;
        }
        default -> result += value;
      }
    }
    return kind == ReduceOp.Kind.AVG ? result * (1d / values.length) : result;
  }

  private static long foldIntegers(
      DataType type, ReduceOp.Kind kind, long[] raw, long @Nullable [] scalars) {
    BigInteger result = scaled(type, raw, scalars, 0);
    for (int k = 1; k < raw.length; k++) {
      BigInteger value = scaled(type, raw, scalars, k);
      result =
          switch (kind) {
            case PROD -> result.multiply(value);
            case MIN -> result.min(value);
            case MAX -> result.max(value);
            default -> result.add(value);
          };
    }
    if (kind == ReduceOp.Kind.AVG) {
      result = wrap(type, result).divide(BigInteger.valueOf(raw.length));
    }
    return wrap(type, result).longValue();
  }

  private static BigInteger scaled(DataType type, long[] raw, long @Nullable [] scalars, int k) {
    BigInteger value = wrap(type, BigInteger.valueOf(raw[k]));
    return scalars == null ? value : value.multiply(BigInteger.valueOf(scalars[k]));
  }

  private static BigInteger wrap(DataType type, BigInteger value) {
    int bits = type.byteSize() * Byte.SIZE;
    BigInteger modulus = BigInteger.ONE.shiftLeft(bits);
    BigInteger wrapped = value.mod(modulus);
    return type.isSignedInteger() && wrapped.testBit(bits - 1)
        ? wrapped.subtract(modulus)
        : wrapped;
  }
}
