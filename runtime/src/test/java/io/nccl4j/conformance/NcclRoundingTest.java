package io.nccl4j.conformance;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.DataType;
import io.nccl4j.conformance.Case.Reduction;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.SplittableRandom;
import java.util.function.DoubleBinaryOperator;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** NCCL may fold in any order, but not to anything. */
@Timeout(60)
class NcclRoundingTest {
  private static final int RANKS = 4;
  private static final double[] EXTREMES = {
    0, -0.0, 1, Float.MAX_VALUE, -Float.MAX_VALUE, Float.MIN_VALUE, 0x1p-126, 0x1p100, -0x1p-100
  };

  /** Four terms, shuffled: folded one after the other, and in two pairs. */
  @ParameterizedTest
  @CsvSource({"SUM, FLOAT32", "PROD, FLOAT32", "SUM, FLOAT64", "PROD, FLOAT64"})
  void everyOrderIsRight(Reduction reduction, DataType type) {
    NcclRounding rounding = NcclRounding.of(type);
    DoubleBinaryOperator fold = fold(reduction, type);
    SplittableRandom random = new SplittableRandom(TestBackend.SEED);
    for (int i = 0; i < 100_000; i++) {
      double[] terms = terms(random, type);
      double want = left(terms, fold);
      List<Double> shuffled = new ArrayList<>(Arrays.stream(terms).boxed().toList());
      Collections.shuffle(shuffled, random);
      double[] mixed = shuffled.stream().mapToDouble(Double::doubleValue).toArray();
      double pairs =
          fold.applyAsDouble(
              fold.applyAsDouble(mixed[0], mixed[1]), fold.applyAsDouble(mixed[2], mixed[3]));
      for (double got : new double[] {left(mixed, fold), pairs}) {
        if (!Double.isNaN(got) || !Double.isNaN(want)) {
          assertTrue(
              rounding.accepts(reduction, terms, got, want),
              () -> Arrays.toString(terms) + " gave " + got + ", not " + want);
        }
      }
    }
  }

  @Test
  void anotherNumberIsWrong() {
    NcclRounding rounding = NcclRounding.of(DataType.FLOAT32);
    double[] huge = {0x1p100, 0x1p100, 0x1p-90, 3};
    double inf = Double.POSITIVE_INFINITY;
    assertTrue(rounding.accepts(Reduction.PROD, huge, 0x1.8p111, inf));
    assertFalse(rounding.accepts(Reduction.PROD, huge, 0x1.81p111, inf));
    assertFalse(rounding.accepts(Reduction.PROD, huge, 0, inf));
    double[] cancelling = {0x1p127, 0x1p127, -0x1p127, -0x1p127};
    assertTrue(rounding.accepts(Reduction.SUM, cancelling, 0, inf));
    assertFalse(rounding.accepts(Reduction.SUM, new double[] {1, 2, 3, 4}, 11, 10));
    assertFalse(rounding.accepts(Reduction.PROD, new double[] {1, 2, 3, 4}, 25, 24));
  }

  private static DoubleBinaryOperator fold(Reduction reduction, DataType type) {
    DoubleBinaryOperator exact = reduction == Reduction.PROD ? (a, b) -> a * b : Double::sum;
    return type == DataType.FLOAT32 ? (a, b) -> (float) exact.applyAsDouble(a, b) : exact;
  }

  private static double left(double[] terms, DoubleBinaryOperator fold) {
    double result = terms[0];
    for (int i = 1; i < terms.length; i++) {
      result = fold.applyAsDouble(result, terms[i]);
    }
    return result;
  }

  private static double[] terms(SplittableRandom random, DataType type) {
    double[] terms = new double[RANKS];
    for (int i = 0; i < RANKS; i++) {
      double term =
          random.nextInt(3) == 0
              ? EXTREMES[random.nextInt(EXTREMES.length)]
              : Float.intBitsToFloat(random.nextInt());
      if (type == DataType.FLOAT64 && random.nextInt(3) == 0) {
        term = Double.longBitsToDouble(random.nextLong());
      }
      terms[i] = term;
    }
    return terms;
  }
}
