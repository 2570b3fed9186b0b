package io.nccl4j.bench.data;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.DataType;
import java.util.SplittableRandom;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

class ElementsTest {
  @ParameterizedTest
  @EnumSource(names = {"FLOAT16", "BFLOAT16", "FLOAT8_E4M3", "FLOAT8_E5M2"})
  void encodesEveryElementBackToItself(DataType type) {
    for (long bits = 0; bits <= Elements.mask(type); bits++) {
      double value = Elements.decode(type, bits);
      long back = Elements.encode(type, value);
      if (Double.isNaN(value)) {
        assertTrue(Double.isNaN(Elements.decode(type, back)));
      } else if (Double.isInfinite(value) && type == DataType.FLOAT8_E5M2) {
        assertEquals(57344, Math.abs(Elements.decode(type, back)));
      } else {
        assertEquals(bits, back, type + " " + value);
      }
    }
  }

  @ParameterizedTest
  @EnumSource(names = {"FLOAT16", "BFLOAT16", "FLOAT8_E4M3", "FLOAT8_E5M2"})
  void roundsToTheNearestEven(DataType type) {
    SplittableRandom random = new SplittableRandom(7);
    NearestElement nearest = new NearestElement(type);
    for (int i = 0; i < 200_000; i++) {
      // Over the type's whole range and a little beyond, halves between neighbours included.
      float value = Float.intBitsToFloat(random.nextInt());
      float scaled = i % 2 == 0 ? value : nearest.middle(random);
      if (Math.abs(scaled) < 40_000) {
        assertEquals(
            nearest.bits(scaled), Elements.encode(type, scaled), () -> type + " of " + scaled);
      }
    }
  }

  @Test
  void knowsTheEightBitFloats() {
    assertEquals(448, Elements.decode(DataType.FLOAT8_E4M3, 0x7e));
    assertEquals(Math.scalb(1.0, -9), Elements.decode(DataType.FLOAT8_E4M3, 1));
    assertEquals(1, Elements.decode(DataType.FLOAT8_E4M3, 0x38));
    assertEquals(57344, Elements.decode(DataType.FLOAT8_E5M2, 0x7b));
    assertEquals(Math.scalb(1.0, -16), Elements.decode(DataType.FLOAT8_E5M2, 1));
    assertEquals(1, Elements.decode(DataType.FLOAT8_E5M2, 0x3c));
    assertEquals(0x7e, Elements.encode(DataType.FLOAT8_E4M3, 1e9));
    assertEquals(0xfe, Elements.encode(DataType.FLOAT8_E4M3, Double.NEGATIVE_INFINITY));
    assertEquals(0x7b, Elements.encode(DataType.FLOAT8_E5M2, 1e9));
  }

  @Test
  void extendsIntegers() {
    assertEquals(-1, Elements.extend(DataType.INT8, 0xff));
    assertEquals(255, Elements.extend(DataType.UINT8, 0xff));
    assertEquals(Integer.MIN_VALUE, Elements.extend(DataType.INT32, 0x80000000L));
    assertEquals(0x80000000L, Elements.extend(DataType.UINT32, 0x80000000L));
    assertEquals(-1, Elements.extend(DataType.UINT64, -1));
  }

  @Test
  void countsUlpsAcrossZero() {
    assertEquals(0, Elements.ulps(DataType.FLOAT32, 0x80000000L, 0));
    assertEquals(2, Elements.ulps(DataType.FLOAT32, 0x80000001L, 1));
    assertEquals(1, Elements.ulps(DataType.FLOAT8_E4M3, 0x38, 0x39));
    assertEquals(
        1, Elements.ulps(DataType.FLOAT64, Double.doubleToLongBits(1), 0x3fefffffffffffffL));
    // Bits as a sign-extending array element delivers them.
    assertEquals(0, Elements.ulps(DataType.FLOAT16, (short) 0xbc00, 0xbc00));
  }
}
