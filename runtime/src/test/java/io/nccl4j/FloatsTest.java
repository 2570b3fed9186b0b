package io.nccl4j;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.math.BigDecimal;
import java.util.Arrays;
import java.util.SplittableRandom;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** Conversions against the formats' definitions, for every code and every place to round. */
@Tag("parallel")
class FloatsTest {
  /** The four formats, by their definitions. */
  enum Format {
    FLOAT16(DataType.FLOAT16, 5, 10, 0x7e00),
    BFLOAT16(DataType.BFLOAT16, 8, 7, 0x7fc0),
    FLOAT8_E4M3(DataType.FLOAT8_E4M3, 4, 3, 0x7f),
    FLOAT8_E5M2(DataType.FLOAT8_E5M2, 5, 2, 0x7f);

    final DataType type;
    final int exponentBits;
    final int fractionBits;
    final int nan;

    Format(DataType type, int exponentBits, int fractionBits, int nan) {
      this.type = type;
      this.exponentBits = exponentBits;
      this.fractionBits = fractionBits;
      this.nan = nan;
    }

    int codes() {
      return 1 << 8 * type.byteSize();
    }

    boolean isNarrow() {
      return type.byteSize() == 1;
    }

    /** The value of a code: the definition, in doubles, which hold all of them. */
    double value(int code) {
      int sign = code >>> 8 * type.byteSize() - 1;
      int exponent = code >>> fractionBits & (1 << exponentBits) - 1;
      int fraction = code & (1 << fractionBits) - 1;
      int bias = (1 << exponentBits - 1) - 1;
      boolean top = exponent == (1 << exponentBits) - 1;
      double magnitude;
      if (top && this == FLOAT8_E4M3 && fraction == 7) {
        magnitude = Double.NaN;
      } else if (top && this != FLOAT8_E4M3) {
        magnitude = fraction == 0 ? Double.POSITIVE_INFINITY : Double.NaN;
      } else if (exponent == 0) {
        magnitude = Math.scalb((double) fraction, 1 - bias - fractionBits);
      } else {
        int significand = fraction + (1 << fractionBits);
        magnitude = Math.scalb((double) significand, exponent - bias - fractionBits);
      }
      return sign == 0 ? magnitude : -magnitude;
    }

    /** The code of the largest finite value. */
    int largest() {
      int code = codes() / 2 - 1;
      while (!Double.isFinite(value(code))) {
        code--;
      }
      return code;
    }

    float[] widen(int[] codes) {
      if (isNarrow()) {
        byte[] bytes = new byte[codes.length];
        for (int i = 0; i < codes.length; i++) {
          bytes[i] = (byte) codes[i];
        }
        return Floats.toFloats(bytes, type);
      }
      short[] shorts = new short[codes.length];
      for (int i = 0; i < codes.length; i++) {
        shorts[i] = (short) codes[i];
      }
      return Floats.toFloats(shorts, type);
    }

    int[] narrow(float[] values) {
      int[] codes = new int[values.length];
      if (isNarrow()) {
        byte[] bytes = Floats.toBytes(values, type);
        Arrays.setAll(codes, i -> bytes[i] & 0xff);
      } else {
        short[] shorts = Floats.toShorts(values, type);
        Arrays.setAll(codes, i -> shorts[i] & 0xffff);
      }
      return codes;
    }
  }

  @ParameterizedTest
  @EnumSource
  void everyCodeHasItsValueAndComesBack(Format format) {
    int[] codes = new int[format.codes()];
    Arrays.setAll(codes, i -> i);
    float[] values = format.widen(codes);
    int[] back = format.narrow(values);
    for (int code : codes) {
      double wanted = format.value(code);
      assertEquals(wanted, values[code], () -> format + " " + Integer.toHexString(code));
      int expected = code;
      if (Double.isNaN(wanted)) {
        expected = format.nan;
      } else if (format.isNarrow() && Double.isInfinite(wanted)) {
        expected = format.largest() | code & 0x80;
      }
      assertEquals(expected, back[code], () -> format + " " + Integer.toHexString(code));
    }
  }

  /** Around the middle between each two neighbours, of either sign, and beyond the largest. */
  @ParameterizedTest
  @EnumSource
  void roundsToNearestEven(Format format) {
    int largest = format.largest();
    int[] expected = new int[2 * 5 * (largest + 1)];
    float[] values = new float[expected.length];
    int at = 0;
    for (int code = 0; code <= largest; code++) {
      double low = format.value(code);
      double high = code < largest ? format.value(code + 1) : 2 * low - format.value(code - 1);
      int above = code < largest ? code + 1 : format.isNarrow() ? largest : largest + 1;
      // bfloat16 is as wide as a float: beyond its largest value a middle is no float.
      float middle = (float) ((low + high) / 2);
      int even = (code & 1) == 0 ? code : above;
      float[] around = {
        (float) low, Math.nextDown(middle), middle, Math.nextUp(middle), Math.nextUp((float) low)
      };
      int[] codes = {code, code, even, above, code};
      for (int i = 0; i < around.length; i++) {
        values[at] = around[i];
        values[at + 1] = -around[i];
        expected[at++] = codes[i];
        expected[at++] = codes[i] | format.codes() / 2;
      }
    }
    int[] got = format.narrow(values);
    for (int i = 0; i < got.length; i++) {
      int index = i;
      assertEquals(
          expected[i],
          got[i],
          () -> format + " of " + values[index] + ", " + Float.toHexString(values[index]));
    }
  }

  @ParameterizedTest
  @EnumSource
  void specialValues(Format format) {
    int sign = format.codes() / 2;
    int infinity = format.isNarrow() ? format.largest() : format.largest() + 1;
    float[] values = {
      Float.POSITIVE_INFINITY,
      Float.NEGATIVE_INFINITY,
      Float.intBitsToFloat(0x7fc00000),
      Float.intBitsToFloat(0x7f800001),
      Float.intBitsToFloat(0xffffffff),
      Float.intBitsToFloat(0xff800001),
      0f,
      -0f
    };
    int nan = format.nan;
    int[] expected = {infinity, infinity | sign, nan, nan, nan, nan, 0, sign};
    // At each place of a block, alone among numbers: what looks for NaN must find one anywhere.
    for (int length : new int[] {1, 7, 2048, 2049, 5000}) {
      for (int place : new int[] {0, length / 2, length - 1}) {
        for (int i = 0; i < values.length; i++) {
          float[] among = new float[length];
          among[place] = values[i];
          int[] wanted = new int[length];
          wanted[place] = expected[i];
          assertArrayEquals(wanted, format.narrow(among));
        }
      }
    }
  }

  /** Floats of any bits against the JDK's conversion and against exact arithmetic. */
  @ParameterizedTest
  @EnumSource
  void anyBits(Format format) {
    SplittableRandom random = new SplittableRandom(20260301);
    float[] values = new float[20_000];
    for (int i = 0; i < values.length; i++) {
      values[i] = Float.intBitsToFloat(random.nextInt());
    }
    int[] got = format.narrow(values);
    for (int i = 0; i < values.length; i++) {
      float value = values[i];
      int code = got[i];
      if (Float.isNaN(value)) {
        assertEquals(format.nan, code);
        continue;
      }
      if (format == Format.FLOAT16) {
        assertEquals(Float.floatToFloat16(value) & 0xffff, code);
      }
      double rounded = format.value(code);
      if (Double.isFinite(rounded) && Math.abs(value) <= format.value(format.largest())) {
        BigDecimal exact = new BigDecimal(value);
        BigDecimal error = exact.subtract(new BigDecimal(rounded)).abs();
        for (int neighbour : new int[] {code - 1, code + 1}) {
          double other = format.value(neighbour & format.codes() - 1);
          if (Double.isFinite(other) && Math.signum(other) * Math.signum(value) >= 0) {
            BigDecimal its = exact.subtract(new BigDecimal(other)).abs();
            assertTrue(error.compareTo(its) <= 0, () -> format + " of " + value);
          }
        }
      }
    }
  }

  @Test
  void partsLeaveTheRestAlone() {
    float[] values = {1, 2, 3, 4, 5};
    short[] shorts = new short[6];
    Floats.convert(values, 1, shorts, 2, 3, DataType.BFLOAT16);
    assertArrayEquals(new short[] {0, 0, 0x4000, 0x4040, 0x4080, 0}, shorts);
    float[] back = new float[4];
    Floats.convert(shorts, 3, back, 1, 2, DataType.BFLOAT16);
    assertArrayEquals(new float[] {0, 3, 4, 0}, back);
    byte[] bytes = new byte[4];
    Floats.convert(values, 0, bytes, 1, 2, DataType.FLOAT8_E5M2);
    assertArrayEquals(new byte[] {0, 0x3c, 0x40, 0}, bytes);
    Floats.convert(bytes, 2, back, 0, 1, DataType.FLOAT8_E5M2);
    assertArrayEquals(new float[] {2, 3, 4, 0}, back);
    Floats.convert(values, 5, shorts, 6, 0, DataType.FLOAT16);
    assertEquals(0, Floats.toShorts(new float[0], DataType.FLOAT16).length);
  }

  @Test
  void badInputIsRefused() {
    float[] values = new float[4];
    short[] shorts = new short[4];
    byte[] bytes = new byte[4];
    Runnable[] calls = {
      () -> Floats.toShorts(null, DataType.FLOAT16),
      () -> Floats.toShorts(values, null),
      () -> Floats.toShorts(values, DataType.FLOAT8_E4M3),
      () -> Floats.toBytes(values, DataType.FLOAT16),
      () -> Floats.toBytes(values, DataType.INT8),
      () -> Floats.toFloats(shorts, DataType.FLOAT32),
      () -> Floats.toFloats(bytes, DataType.UINT8),
      () -> Floats.toFloats((byte[]) null, DataType.FLOAT8_E4M3),
      () -> Floats.convert(values, 1, shorts, 0, 4, DataType.FLOAT16),
      () -> Floats.convert(values, 0, shorts, 1, 4, DataType.FLOAT16),
      () -> Floats.convert(values, -1, bytes, 0, 1, DataType.FLOAT8_E4M3),
      () -> Floats.convert(bytes, 0, values, 0, -1, DataType.FLOAT8_E4M3),
      () -> Floats.convert(shorts, Integer.MAX_VALUE, values, 0, 1, DataType.FLOAT16),
      () -> Floats.convert(shorts, 0, (float[]) null, 0, 1, DataType.FLOAT16),
    };
    for (Runnable call : calls) {
      InvalidArgumentException e = assertThrows(InvalidArgumentException.class, call::run);
      assertFalse(e.remedy().isEmpty(), e::getMessage);
    }
  }
}
