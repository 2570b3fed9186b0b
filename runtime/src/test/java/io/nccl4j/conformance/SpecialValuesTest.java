package io.nccl4j.conformance;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ReduceOp;
import java.util.Arrays;
import java.util.List;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * The arithmetic of {@link ReduceOp} where it is easily got wrong, with results worked out by hand.
 */
@Timeout(value = 60, threadMode = ThreadMode.SEPARATE_THREAD)
class SpecialValuesTest {
  private static final double NAN = Double.NaN;
  private static final double INF = Double.POSITIVE_INFINITY;
  private static final double TINY = Float.MIN_VALUE;

  /** One element from each rank, and what they give; all in bits. */
  private record Row(DataType type, ReduceOp op, long result, long... elements) {
    @Override
    public String toString() {
      return type.label() + " " + op + " " + hex(elements) + " = " + Long.toHexString(result);
    }

    private static List<String> hex(long[] bits) {
      return Arrays.stream(bits).mapToObj(Long::toHexString).toList();
    }
  }

  private static Row row(DataType type, ReduceOp op, double result, double... elements) {
    return new Row(
        type,
        op,
        bits(result, type),
        Arrays.stream(elements).mapToLong(element -> bits(element, type)).toArray());
  }

  private static long bits(double value, DataType type) {
    if (type == DataType.FLOAT64) {
      return Double.doubleToLongBits(value);
    }
    long raw = type.isFloatingPoint() ? Bits.ofFloat((float) value, type) : (long) value;
    return raw & -1L >>> (64 - 8 * type.byteSize());
  }

  static Stream<Row> rows() {
    DataType f32 = DataType.FLOAT32;
    DataType f64 = DataType.FLOAT64;
    DataType f16 = DataType.FLOAT16;
    DataType bf16 = DataType.BFLOAT16;
    DataType e4m3 = DataType.FLOAT8_E4M3;
    DataType e5m2 = DataType.FLOAT8_E5M2;
    ReduceOp sum = ReduceOp.SUM;
    ReduceOp prod = ReduceOp.PROD;
    ReduceOp min = ReduceOp.MIN;
    ReduceOp max = ReduceOp.MAX;
    ReduceOp avg = ReduceOp.AVG;
    Stream<Row> ofEveryFloat =
        Stream.of(f32, f64, f16, bf16, e4m3, e5m2)
            .flatMap(
                type ->
                    Stream.of(
                        row(type, min, 1, NAN, 1, 2),
                        row(type, min, 1, 1, NAN, NAN),
                        row(type, max, 2, 2, NAN, 1),
                        row(type, max, -1, NAN, NAN, -1),
                        row(type, min, NAN, NAN, NAN),
                        row(type, max, NAN, NAN, NAN),
                        row(type, sum, NAN, NAN, 1),
                        row(type, prod, NAN, 0, NAN),
                        row(type, min, -0.0, 0, -0.0),
                        row(type, min, -0.0, -0.0, 0),
                        row(type, max, 0, 0, -0.0),
                        row(type, max, 0, -0.0, 0),
                        row(type, sum, -0.0, -0.0, -0.0),
                        row(type, sum, 0, -0.0, 0),
                        row(type, avg, -0.0, -0.0, -0.0),
                        row(type, prod, -0.0, 0, -2),
                        row(type, avg, 1.5, 1, 2),
                        row(type, sum, -0.0, -0.0)));
    Stream<Row> ofFloats =
        Stream.of(
            row(f32, sum, NAN, INF, -INF),
            row(f32, sum, INF, Float.MAX_VALUE, Float.MAX_VALUE),
            row(f32, sum, INF, Float.MAX_VALUE, Float.MAX_VALUE, -Float.MAX_VALUE),
            row(f32, sum, 3 * TINY, TINY, TINY, TINY),
            row(f32, prod, 0, TINY, 0.5),
            row(f32, avg, (1f + 1f + 0f) * (1f / 3), 1, 1, 0),
            row(f32, avg, 5f * (1f / 3), 5, 0, 0),
            // In rank order: the small ones are lost one by one, not added up first.
            row(f32, sum, 1 << 24, 1 << 24, 1, 1),
            row(f32, sum, (1 << 24) + 2, 1, 1, 1 << 24),
            row(f64, sum, 1L << 53, 1L << 53, 1, 1),
            row(f64, avg, 5 * (1.0 / 3), 5, 0, 0),
            row(f64, sum, INF, Double.MAX_VALUE, Double.MAX_VALUE),
            row(f64, sum, Double.MIN_VALUE * 2, Double.MIN_VALUE, Double.MIN_VALUE),
            // Accumulated in 32 bits: no overflow and no rounding on the way.
            row(f16, sum, 65504, 65504, 65504, -65504),
            row(f16, sum, INF, 65504, 65504),
            row(f16, sum, 2050, 2048, 1, 1),
            row(f16, prod, 60000, 60000, 2, 0.5),
            row(f16, sum, 0x1p-24 * 3, 0x1p-24, 0x1p-23),
            row(f16, max, INF, INF, 1),
            row(f16, avg, 65504, 65504, 65504),
            row(bf16, sum, 1 + 0x1p-7, 1, 0x1p-8, 0x1p-8),
            row(bf16, sum, 0x1p-133 * 2, 0x1p-133, 0x1p-133),
            row(bf16, min, -INF, -INF, NAN),
            row(e4m3, sum, 448, 448, 448),
            row(e4m3, sum, -448, -448, -448),
            row(e4m3, sum, 448, 448, 448, -448),
            row(e4m3, prod, 448, 400, 400),
            row(e4m3, sum, 0x1p-9 * 3, 0x1p-9, 0x1p-9, 0x1p-9),
            row(e5m2, sum, 57344, 57344, 57344),
            row(e5m2, prod, -57344, -57344, 57344),
            // Infinities are beyond the range, too.
            new Row(e5m2, sum, 0x7b, 0x7c, 0x3c),
            new Row(e5m2, max, 0x7b, 0x7c, 0x3c),
            new Row(e5m2, min, 0xfb, 0xfc, 0x3c),
            new Row(e5m2, sum, 0x7e, 0x7c, 0xfc),
            row(f32, ReduceOp.preMulSum(0.1), 0.1f + 0.1f * 3f, 1, 3),
            // The scalar is rounded to the type: as a float it would give 0x3dce.
            new Row(DataType.BFLOAT16, ReduceOp.preMulSum(0.1), 0x3dcf, 0x3f81, 0),
            // A lone rank's elements are copied, not converted.
            new Row(e5m2, sum, 0x7c, 0x7c),
            new Row(e5m2, max, 0xfc, 0xfc),
            new Row(e5m2, ReduceOp.preMulSum(1.0), 0x7b, 0x7c));
    Stream<Row> ofIntegers =
        Stream.of(
            row(DataType.INT8, sum, -56, 100, 100),
            row(DataType.INT8, prod, 0, 64, 4),
            row(DataType.INT8, avg, -1, -3, 0),
            row(DataType.INT8, avg, 1, 3, 0),
            row(DataType.INT8, avg, 0, -128, -128),
            row(DataType.INT8, avg, -28, 100, 100),
            row(DataType.INT8, min, -128, 127, -128),
            row(DataType.UINT8, sum, 144, 200, 200),
            row(DataType.UINT8, avg, 72, 200, 200),
            row(DataType.UINT8, max, 200, 200, 100),
            row(DataType.UINT8, min, 100, 200, 100),
            row(DataType.INT32, avg, -2, -7, 0, 0),
            row(DataType.INT32, prod, 0, 65536, 65536),
            row(DataType.INT32, sum, Integer.MIN_VALUE, Integer.MAX_VALUE, 1),
            row(DataType.UINT32, max, 0x80000000L, 0x80000000L, 1),
            row(DataType.UINT32, avg, 0, 0x80000000L, 0x80000000L),
            new Row(DataType.INT64, sum, Long.MIN_VALUE, Long.MAX_VALUE, 1),
            new Row(DataType.INT64, avg, -1, -5, 0, 0),
            new Row(DataType.INT64, max, 1, Long.MIN_VALUE, 1),
            new Row(DataType.UINT64, max, Long.MIN_VALUE, Long.MIN_VALUE, 1),
            new Row(DataType.UINT64, min, 1, Long.MIN_VALUE, 1),
            new Row(DataType.UINT64, avg, 0x5555555555555555L, -1, 0, 0),
            new Row(DataType.UINT64, prod, 1, -1, -1),
            new Row(DataType.INT32, ReduceOp.preMulSum(2.0), 6, 1, 2),
            new Row(DataType.INT8, ReduceOp.preMulSum(-128L), 0, 1, 1),
            new Row(DataType.INT64, ReduceOp.preMulSum((1L << 62) + 1), (1L << 62) + 1, 1, 0),
            row(DataType.FLOAT64, ReduceOp.preMulSum(3L), 12, 1, 3));
    return Stream.of(ofEveryFloat, ofFloats, ofIntegers).flatMap(rows -> rows);
  }

  /**
   * Checks short and long operations, whose kernels may differ, with the row's elements everywhere.
   */
  @ParameterizedTest(name = "{0}")
  @MethodSource("rows")
  void isExact(Row row) {
    if (row.type().isFloatingPoint()) {
      boolean steps =
          row.elements().length > 2 && row.op() != ReduceOp.MIN && row.op() != ReduceOp.MAX;
      boolean scaledAlone =
          row.type().byteSize() == 1
              && row.elements().length == 1
              && row.op().kind() == ReduceOp.Kind.PRE_MUL_SUM;
      if (steps || scaledAlone) {
        TestBackend.requireHost(
            "NCCL rounds at each step in an order of its own, and scales no 8-bit float of one"
                + " rank");
      }
    }
    try (Ranks ranks = new Ranks(row.elements().length)) {
      for (int count : new int[] {1, 45, 30_001}) {
        check(ranks, row, count);
      }
    }
  }

  private static void check(Ranks ranks, Row row, int count) {
    DataType type = row.type();
    for (int rank = 0; rank < ranks.size(); rank++) {
      byte[] bytes = new byte[count * type.byteSize()];
      for (int i = 0; i < count; i++) {
        Bits.put(bytes, i, type, row.elements()[rank]);
      }
      ranks.in.get(rank).copyFrom(bytes);
    }
    for (int rank = 0; rank < ranks.size(); rank++) {
      DeviceBuffer in = ranks.in.get(rank);
      DeviceBuffer out = ranks.out.get(rank);
      ranks.get(rank).allReduce(in, out, count, type, row.op(), ranks.streams.get(rank));
    }
    ranks.synchronize();
    for (DeviceBuffer out : ranks.out) {
      byte[] bytes = new byte[count * type.byteSize()];
      out.copyTo(bytes);
      for (int i : IntStream.of(0, count / 2, count - 1).toArray()) {
        long got = Bits.get(bytes, i, type);
        if (Bits.isNan(row.result(), type)) {
          assertTrue(Bits.isNan(got, type), () -> Long.toHexString(got));
        } else {
          assertEquals(Long.toHexString(row.result()), Long.toHexString(got));
        }
      }
    }
  }

  @Test
  void aDeviceScalarIsReadWhenTheOperationRuns() {
    TestBackend.requireHost("on a GPU the operation may run before the scalar is changed");
    try (Ranks ranks = new Ranks(2);
        DeviceBuffer scalar = ranks.get(0).device().allocate(4)) {
      scalar.copyFrom(new int[] {1000});
      ranks.put(0, 7);
      ranks.put(1, 5);
      ReduceOp scaled = ReduceOp.preMulSum(scalar);
      ranks
          .get(0)
          .allReduce(
              ranks.in.get(0), ranks.out.get(0), 1, DataType.INT32, scaled, ranks.streams.get(0));
      // Nothing can run before the other rank has come.
      scalar.copyFrom(new int[] {3});
      ranks
          .get(1)
          .allReduce(
              ranks.in.get(1),
              ranks.out.get(1),
              1,
              DataType.INT32,
              ReduceOp.preMulSum(2L),
              ranks.streams.get(1));
      ranks.synchronize();
      assertEquals(3 * 7 + 2 * 5, ranks.got(0, 1)[0]);
      assertEquals(3 * 7 + 2 * 5, ranks.got(1, 1)[0]);
    }
  }
}
