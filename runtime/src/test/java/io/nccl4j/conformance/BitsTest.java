package io.nccl4j.conformance;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.DataType;
import java.util.SplittableRandom;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** The oracle's conversions, against the JDK's where it has them. */
@Timeout(60)
class BitsTest {
  @ParameterizedTest
  @EnumSource(names = {"FLOAT16", "BFLOAT16", "FLOAT8_E4M3", "FLOAT8_E5M2"})
  void everyValueSurvivesTheWayThroughFloat(DataType type) {
    boolean saturates = type.byteSize() == 1;
    for (int raw = 0; raw < 1 << 8 * type.byteSize(); raw++) {
      float value = Bits.toFloat(raw, type);
      if (Float.isNaN(value)) {
        assertTrue(Bits.isNan(Bits.ofFloat(value, type), type));
      } else if (!saturates || !Float.isInfinite(value)) {
        assertEquals(raw, Bits.ofFloat(value, type));
      }
    }
  }

  @ParameterizedTest
  @EnumSource(names = {"FLOAT16", "BFLOAT16", "FLOAT8_E4M3", "FLOAT8_E5M2"})
  void roundsToTheNearestAndTiesToEven(DataType type) {
    int magnitudes = 1 << (8 * type.byteSize() - 1);
    for (int raw = 0; raw + 1 < magnitudes; raw++) {
      double low = Bits.toFloat(raw, type);
      double high = Bits.toFloat(raw + 1L, type);
      if (Double.isNaN(high) || Double.isInfinite(high)) {
        break;
      }
      float middle = (float) ((low + high) / 2);
      if (type == DataType.BFLOAT16 || middle != 0) {
        assertEquals(raw + (raw & 1), Bits.ofFloat(middle, type));
        assertEquals(raw, Bits.ofFloat(Math.nextDown(middle), type));
        assertEquals(raw + 1, Bits.ofFloat(Math.nextUp(middle), type));
      }
    }
  }

  @Test
  void halvesAreTheJdks() {
    SplittableRandom random = new SplittableRandom(TestBackend.SEED);
    for (int i = 0; i < 1_000_000; i++) {
      float value = Float.intBitsToFloat(random.nextInt());
      short expected = Float.floatToFloat16(value);
      if (!Float.isNaN(value)) {
        assertEquals(expected & 0xffff, Bits.ofFloat(value, DataType.FLOAT16));
      }
      assertEquals(
          Float.float16ToFloat(expected), Bits.toFloat(expected & 0xffff, DataType.FLOAT16));
    }
  }

  @Test
  void eightBitFloatsSaturateAndSixteenBitFloatsOverflow() {
    assertEquals(0x7e, Bits.ofFloat(1e9f, DataType.FLOAT8_E4M3));
    assertEquals(0xfe, Bits.ofFloat(Float.NEGATIVE_INFINITY, DataType.FLOAT8_E4M3));
    assertEquals(0x7b, Bits.ofFloat(Float.POSITIVE_INFINITY, DataType.FLOAT8_E5M2));
    assertEquals(0x7c00, Bits.ofFloat(65520, DataType.FLOAT16));
    assertEquals(0x7bff, Bits.ofFloat(65519, DataType.FLOAT16));
    assertEquals(0xff80, Bits.ofFloat(-Float.MAX_VALUE, DataType.BFLOAT16));
    assertEquals(448, Bits.toFloat(0x7e, DataType.FLOAT8_E4M3));
    assertEquals(57344, Bits.toFloat(0x7b, DataType.FLOAT8_E5M2));
  }
}
