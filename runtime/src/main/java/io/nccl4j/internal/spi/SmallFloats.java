package io.nccl4j.internal.spi;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/** Conversions between binary32 and the floats that Java has no type for. */
public final class SmallFloats {
  private static final int INFINITY = 0x7f800000;

  /** Elements whose bits are looked at together: they fit a cache beside what they came from. */
  private static final int BLOCK = 2048;

  private SmallFloats() {}

  /** The value of 16 bits. */
  public static float fromBfloat16(short bits) {
    return Float.intBitsToFloat(bits << 16);
  }

  /** Rounds to nearest even; NaN becomes 0x7fc0. */
  public static short toBfloat16(float value) {
    return roundToBfloat16(Float.floatToRawIntBits(value));
  }

  /** As {@link #toBfloat16} from the bits of a float, without a branch so that loops vectorise. */
  public static short roundToBfloat16(int bits) {
    return (short) bfloat16Bits(bits);
  }

  private static int bfloat16Bits(int bits) {
    int rounded = bits + 0x7fff + (bits >>> 16 & 1);
    int nan = (INFINITY - (bits & Integer.MAX_VALUE)) >> 31;
    return (rounded & ~nan | 0x7fc00000 & nan) >>> 16;
  }

  /** Rounds to nearest even; NaN becomes 0x7e00. */
  public static short toFloat16(float value) {
    return value != value ? 0x7e00 : Float.floatToFloat16(value);
  }

  // ---- arrays: each loop does one thing on one kind of number, so that it vectorises

  /** As {@link Float#float16ToFloat}. */
  public static void fromFloat16(short[] from, int fromIndex, float[] to, int toIndex, int count) {
    for (int i = 0; i < count; i++) {
      to[toIndex + i] = Float.float16ToFloat(from[fromIndex + i]);
    }
  }

  /** As {@link #fromBfloat16(short)}. */
  public static void fromBfloat16(short[] from, int fromIndex, float[] to, int toIndex, int count) {
    for (int i = 0; i < count; i++) {
      to[toIndex + i] = fromBfloat16(from[fromIndex + i]);
    }
  }

  /** As {@link #toFloat16(float)}. */
  public static void toFloat16(float[] from, int fromIndex, short[] to, int toIndex, int count) {
    for (int i = 0; i < count; i++) {
      to[toIndex + i] = Float.floatToFloat16(from[fromIndex + i]);
    }
    int[] bits = new int[Math.min(count, BLOCK)];
    for (int done = 0; done < count; done += BLOCK) {
      int n = Math.min(BLOCK, count - done);
      copyBits(from, fromIndex + done, bits, n);
      if (hasNan(bits, n)) {
        for (int i = 0; i < n; i++) {
          to[toIndex + done + i] = toFloat16(from[fromIndex + done + i]);
        }
      }
    }
  }

  /** As {@link #toBfloat16(float)}. */
  public static void toBfloat16(float[] from, int fromIndex, short[] to, int toIndex, int count) {
    int[] bits = new int[Math.min(count, BLOCK)];
    for (int done = 0; done < count; done += BLOCK) {
      int n = Math.min(BLOCK, count - done);
      copyBits(from, fromIndex + done, bits, n);
      for (int i = 0; i < n; i++) {
        bits[i] = bfloat16Bits(bits[i]);
      }
      for (int i = 0; i < n; i++) {
        to[toIndex + done + i] = (short) bits[i];
      }
    }
  }

  private static void copyBits(float[] from, int fromIndex, int[] bits, int count) {
    MemorySegment.copy(
        MemorySegment.ofArray(from),
        ValueLayout.JAVA_INT_UNALIGNED,
        (long) Float.BYTES * fromIndex,
        bits,
        0,
        count);
  }

  private static boolean hasNan(int[] bits, int count) {
    int found = 0;
    for (int i = 0; i < count; i++) {
      found |= INFINITY - (bits[i] & Integer.MAX_VALUE);
    }
    return found < 0;
  }

  /**
   * The 8-bit floats, by tables: 256 floats one way; the other way all floats with the upper 14
   * bits kept and the rest jammed into the lowest of them, which is enough to round correctly (five
   * fraction bits where three are left).
   */
  public enum Float8 {
    /** 4 exponent bits of bias 7, 3 fraction bits; no infinity. */
    E4M3(3, 7, 448),
    /** 5 exponent bits of bias 15, 2 fraction bits. */
    E5M2(2, 15, 57344);

    private static final int DROPPED_BITS = 18;
    private static final int DROPPED = (1 << DROPPED_BITS) - 1;
    private static final byte NAN = 0x7f;

    private final float[] values = new float[256];
    private final byte[] codes = new byte[1 << Integer.SIZE - DROPPED_BITS];

    Float8(int fractionBits, int bias, float largest) {
      for (int code = 0; code < values.length; code++) {
        values[code] = decode(code, fractionBits, bias, largest);
      }
      for (int index = 0; index < codes.length; index++) {
        float value = Float.intBitsToFloat(index << DROPPED_BITS);
        codes[index] = round(value, fractionBits, bias, largest);
      }
    }

    /** The value of a code. */
    public float toFloat(byte code) {
      return values[code & 0xff];
    }

    /** Rounds to nearest even, saturates, and makes NaN 0x7f. */
    public byte fromFloat(float value) {
      int bits = Float.floatToRawIntBits(value);
      int jam = (bits & DROPPED) + DROPPED >>> DROPPED_BITS;
      return codes[bits >>> DROPPED_BITS | jam];
    }

    /** As {@link #toFloat}, of the first {@code count} codes: faster than from anywhere. */
    public void toFloats(byte[] from, float[] to, int count) {
      float[] table = values;
      for (int i = 0; i < count; i++) {
        to[i] = table[from[i] & 0xff];
      }
    }

    /** As {@link #fromFloat}, of the first {@code count} floats: faster than from anywhere. */
    public void fromFloats(float[] from, byte[] to, int count) {
      byte[] table = codes;
      for (int i = 0; i < count; i++) {
        int bits = Float.floatToRawIntBits(from[i]);
        int jam = (bits & DROPPED) + DROPPED >>> DROPPED_BITS;
        to[i] = table[bits >>> DROPPED_BITS | jam];
      }
    }

    /** As {@link #toFloat}, of {@code count} codes. */
    public void toFloats(byte[] from, int fromIndex, float[] to, int toIndex, int count) {
      float[] table = values;
      for (int i = 0; i < count; i++) {
        to[toIndex + i] = table[from[fromIndex + i] & 0xff];
      }
    }

    /** As {@link #fromFloat}, of {@code count} floats. */
    public void fromFloats(float[] from, int fromIndex, byte[] to, int toIndex, int count) {
      byte[] table = codes;
      for (int i = 0; i < count; i++) {
        int bits = Float.floatToRawIntBits(from[fromIndex + i]);
        int jam = (bits & DROPPED) + DROPPED >>> DROPPED_BITS;
        to[toIndex + i] = table[bits >>> DROPPED_BITS | jam];
      }
    }

    private static float decode(int code, int fractionBits, int bias, float largest) {
      int exponent = (code & 0x7f) >> fractionBits;
      int fraction = code & (1 << fractionBits) - 1;
      int implicit = exponent == 0 ? 0 : 1 << fractionBits;
      float magnitude =
          Math.scalb((float) (implicit + fraction), Math.max(exponent, 1) - bias - fractionBits);
      if (magnitude > largest) {
        // What follows the largest finite code: infinity where the format has one, then NaN.
        magnitude = fractionBits == 2 && fraction == 0 ? Float.POSITIVE_INFINITY : Float.NaN;
      }
      return code < 0x80 ? magnitude : -magnitude;
    }

    private static byte round(float value, int fractionBits, int bias, float largest) {
      if (value != value) {
        return NAN;
      }
      float magnitude = Math.min(Math.abs(value), largest);
      int exponent = Math.max(Math.getExponent(magnitude), 1 - bias);
      // In units of the last place, a carry runs into the exponent field by itself.
      int units = (int) Math.rint(Math.scalb((double) magnitude, fractionBits - exponent));
      int code = (exponent + bias - 1 << fractionBits) + units;
      return (byte) (value < 0 || 1 / value < 0 ? code | 0x80 : code);
    }
  }
}
