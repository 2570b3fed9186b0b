package io.nccl4j.bench.data;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import java.math.BigInteger;
import java.nio.LongBuffer;
import java.util.Arrays;
import java.util.EnumMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.DoubleUnaryOperator;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * Recomputes expected values by other means: integers in unlimited precision, floats rounded to
 * their type at every step, in several orders.
 */
class TestDataTest {
  private static final long SEED = 5;
  private static final int ELEMENTS = 3000;
  private static final Map<DataType, NearestElement> NEAREST = new EnumMap<>(DataType.class);

  static Stream<Arguments> cases() {
    return Arrays.stream(DataType.values())
        .flatMap(type -> Arrays.stream(ReduceOp.Kind.values()).map(op -> Arguments.of(type, op)));
  }

  @ParameterizedTest
  @MethodSource("cases")
  void isExactForUpToSixteenRanks(DataType type, ReduceOp.Kind op) {
    for (int nranks = 1; nranks <= 16; nranks++) {
      TestData data = new TestData(type, op, nranks, Backend.HOST);
      List<Pattern> inputs =
          IntStream.range(0, nranks).mapToObj(rank -> data.input(rank, SEED)).toList();
      Pattern reduced = data.reduced(SEED);
      // Columns come again and again: each is recomputed once.
      Set<LongBuffer> seen = new HashSet<>();
      for (int i = 0; i < ELEMENTS; i++) {
        long index = i * 7L;
        long[] bits = new long[nranks];
        long[] column = new long[nranks + 1];
        for (int rank = 0; rank < nranks; rank++) {
          bits[rank] = inputs.get(rank).at(index);
          column[rank] = bits[rank];
        }
        column[nranks] = reduced.at(index);
        if (!seen.add(LongBuffer.wrap(column))) {
          continue;
        }
        if (type.isFloatingPoint()) {
          checkFloat(type, op, bits, reduced.at(index));
        } else {
          assertEquals(integer(type, op, bits), reduced.at(index), type + " " + op + " " + nranks);
        }
      }
    }
  }

  private static long integer(DataType type, ReduceOp.Kind op, long[] bits) {
    int width = 8 * type.byteSize();
    BigInteger modulus = BigInteger.ONE.shiftLeft(width);
    BigInteger result = value(type, bits[0], modulus).multiply(scalar(op, 0));
    for (int rank = 1; rank < bits.length; rank++) {
      BigInteger next = value(type, bits[rank], modulus).multiply(scalar(op, rank));
      result =
          switch (op) {
            case SUM, AVG, PRE_MUL_SUM -> result.add(next);
            case PROD -> result.multiply(next);
            case MAX -> result.max(next);
            case MIN -> result.min(next);
          };
    }
    if (op == ReduceOp.Kind.AVG) {
      // The sum must not have wrapped, or it would matter where it did.
      assertEquals(result, value(type, result.mod(modulus).longValue(), modulus));
      result = result.divide(BigInteger.valueOf(bits.length));
    }
    return result.mod(modulus).longValue();
  }

  private static BigInteger scalar(ReduceOp.Kind op, int rank) {
    return op == ReduceOp.Kind.PRE_MUL_SUM && rank % 2 == 1 ? BigInteger.TWO : BigInteger.ONE;
  }

  private static BigInteger value(DataType type, long bits, BigInteger modulus) {
    BigInteger unsigned = BigInteger.valueOf(bits).mod(modulus);
    boolean negative = type.isSignedInteger() && unsigned.testBit(modulus.bitLength() - 2);
    return negative ? unsigned.subtract(modulus) : unsigned;
  }

  private static void checkFloat(DataType type, ReduceOp.Kind op, long[] bits, long expected) {
    int n = bits.length;
    double[] values = new double[n];
    for (int rank = 0; rank < n; rank++) {
      int scalar = op == ReduceOp.Kind.PRE_MUL_SUM && rank % 2 == 1 ? 2 : 1;
      values[rank] = Elements.decode(type, bits[rank]) * scalar;
      assertTrue(Double.isFinite(values[rank]));
    }
    if (op == ReduceOp.Kind.AVG) {
      checkAverage(type, values, expected);
      return;
    }
    double wanted = Elements.decode(type, expected);
    DoubleUnaryOperator round = rounding(type);
    double[] reversed = new double[n];
    double[] rotated = new double[n];
    for (int i = 0; i < n; i++) {
      reversed[i] = values[n - 1 - i];
      rotated[i] = values[(i + n - n / 2) % n];
    }
    assertEquals(
        wanted, fold(op, values, round), () -> type + " " + op + " of " + Arrays.toString(values));
    assertEquals(wanted, fold(op, reversed, round));
    assertEquals(wanted, fold(op, rotated, round));
    assertEquals(wanted, tree(op, rotated, 0, n, round));
  }

  private static void checkAverage(DataType type, double[] values, long expected) {
    int n = values.length;
    DoubleUnaryOperator round = rounding(type);
    // As NCCL does it: scale each, then add, in the type.
    double scale = round.applyAsDouble(type == DataType.FLOAT64 ? 1.0 / n : 1.0f / n);
    double[] scaled = Arrays.stream(values).map(v -> round.applyAsDouble(v * scale)).toArray();
    double ncclWay = fold(ReduceOp.Kind.SUM, scaled, round);
    long off = Elements.ulps(type, Elements.encode(type, ncclWay), expected);
    assertTrue(
        off <= (Integer.bitCount(n) == 1 ? 0 : TestData.CUDA_AVG_ULPS),
        type + " " + Arrays.toString(values));
    // As the host does it: an exact sum, scaled and rounded once.
    double sum = Arrays.stream(values).sum();
    double hostWay = type == DataType.FLOAT64 ? sum * (1.0 / n) : (float) sum * (1.0f / n);
    assertEquals(Elements.decode(type, expected), round.applyAsDouble(hostWay));
  }

  private static DoubleUnaryOperator rounding(DataType type) {
    return switch (type) {
      case FLOAT64 -> value -> value;
      case FLOAT32 -> value -> (float) value;
      default -> NEAREST.computeIfAbsent(type, NearestElement::new)::round;
    };
  }

  private static double combine(ReduceOp.Kind op, double a, double b, DoubleUnaryOperator round) {
    return switch (op) {
      case SUM, AVG, PRE_MUL_SUM -> round.applyAsDouble(a + b);
      case PROD -> round.applyAsDouble(a * b);
      case MAX -> a > b ? a : b;
      case MIN -> a < b ? a : b;
    };
  }

  private static double fold(ReduceOp.Kind op, double[] values, DoubleUnaryOperator round) {
    double result = values[0];
    for (int i = 1; i < values.length; i++) {
      result = combine(op, result, values[i], round);
    }
    return result;
  }

  private static double tree(
      ReduceOp.Kind op, double[] values, int from, int to, DoubleUnaryOperator round) {
    if (to - from == 1) {
      return values[from];
    }
    int half = from + (to - from) / 2;
    return combine(
        op, tree(op, values, from, half, round), tree(op, values, half, to, round), round);
  }

  @ParameterizedTest
  @MethodSource("cases")
  void everyRankMatters(DataType type, ReduceOp.Kind op) {
    for (int nranks : new int[] {2, 3, 8, 16}) {
      TestData data = new TestData(type, op, nranks, Backend.HOST);
      List<Pattern> inputs =
          IntStream.range(0, nranks).mapToObj(rank -> data.input(rank, SEED)).toList();
      Pattern reduced = data.reduced(SEED);
      for (int left = 0; left < nranks; left++) {
        int without = left;
        long changed =
            IntStream.range(0, Pattern.COLUMNS)
                .filter(
                    i -> {
                      long[] bits = new long[nranks];
                      for (int rank = 0; rank < nranks; rank++) {
                        // One rank's data replaced by another's.
                        int from = rank == without ? (rank + 1) % nranks : rank;
                        bits[rank] = inputs.get(from).at(i);
                      }
                      long result =
                          type.isFloatingPoint()
                              ? ExactFold.floats(type, op, bits)
                              : ExactFold.integers(type, op, bits);
                      return result != reduced.at(i);
                    })
                .limit(3)
                .count();
        assertTrue(changed >= 3, type + " " + op + " rank " + left + " of " + nranks);
      }
    }
  }

  @Test
  void onlyCudaAveragesMayBeOff() {
    for (int nranks : new int[] {3, 4}) {
      for (Backend backend : new Backend[] {Backend.HOST, Backend.CUDA}) {
        Pattern reduced =
            new TestData(DataType.FLOAT32, ReduceOp.Kind.AVG, nranks, backend).reduced(SEED);
        int[] values = {(int) reduced.at(0), (int) reduced.at(1) + 2, (int) reduced.at(2) + 3};
        int right = backend == Backend.CUDA && nranks == 3 ? 2 : 1;
        assertEquals(3 - right, reduced.countWrong(values, 0), nranks + " " + backend);
      }
    }
  }

  @Test
  void seedsAndRanksDiffer() {
    TestData data = new TestData(DataType.INT64, ReduceOp.Kind.SUM, 2, Backend.HOST);
    assertNotEquals(data.input(0, 1).at(0), data.input(1, 1).at(0));
    assertNotEquals(data.input(0, 1).at(0), data.input(0, 2).at(0));
  }
}
