package io.nccl4j.bench.data;

import io.nccl4j.DataType;
import java.util.Arrays;
import java.util.SplittableRandom;

/**
 * Rounds by looking through all finite elements of a small type; it shares no code with the rest.
 */
final class NearestElement {
  private final double[] magnitudes;
  private final int width;

  NearestElement(DataType type) {
    width = 8 * type.byteSize();
    int fractionBits =
        switch (type) {
          case FLOAT16 -> 10;
          case BFLOAT16 -> 7;
          case FLOAT8_E4M3 -> 3;
          default -> 2;
        };
    int bias = (1 << (width - 2 - fractionBits)) - 1;
    int fields = 1 << (width - 1 - fractionBits);
    // E4M3 has finite numbers in its last exponent, all but the very last pattern.
    int finite =
        type == DataType.FLOAT8_E4M3 ? (fields << fractionBits) - 1 : (fields - 1) << fractionBits;
    magnitudes = new double[finite];
    for (int bits = 0; bits < finite; bits++) {
      int field = bits >> fractionBits;
      double fraction = (bits & ((1 << fractionBits) - 1)) / (double) (1 << fractionBits);
      magnitudes[bits] =
          field == 0
              ? fraction * Math.pow(2, 1 - bias)
              : (1 + fraction) * Math.pow(2, field - bias);
    }
  }

  /** The bits of the nearest element, of the even one of two; beyond the range the last one. */
  long bits(double value) {
    double magnitude = Math.abs(value);
    int at = Arrays.binarySearch(magnitudes, magnitude);
    if (at < 0) {
      int above = Math.min(-at - 1, magnitudes.length - 1);
      int below = Math.max(above - 1, 0);
      double up = magnitudes[above] - magnitude;
      double down = magnitude - magnitudes[below];
      at = up < down || (up == down && above % 2 == 0) ? above : below;
    }
    long sign = Double.doubleToRawLongBits(value) < 0 ? 1L << (width - 1) : 0;
    return sign | at;
  }

  /** The value of the nearest element. */
  double round(double value) {
    return Math.copySign(magnitudes[(int) (bits(value) & ((1L << (width - 1)) - 1))], value);
  }

  /** The middle between two neighbours of either sign. */
  float middle(SplittableRandom random) {
    int below = random.nextInt(magnitudes.length - 1);
    double middle = (magnitudes[below] + magnitudes[below + 1]) / 2;
    return (float) (random.nextBoolean() ? middle : -middle);
  }
}
