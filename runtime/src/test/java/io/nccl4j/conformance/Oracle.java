package io.nccl4j.conformance;

import io.nccl4j.Backend;
import io.nccl4j.DataType;
import io.nccl4j.conformance.Case.Op;
import io.nccl4j.conformance.Case.Placement;
import io.nccl4j.conformance.Case.Values;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import java.util.concurrent.atomic.AtomicReference;
import java.util.zip.CRC32C;

/**
 * What each rank sends in a case, and what it must receive, by the definitions in the interface's
 * documentation.
 *
 * <p>Used by all ranks of a process at once. Offsets and counts are in elements.
 */
final class Oracle {
  /** Received elements: {@code bytes} at element {@code offset} of the receive range. */
  record Block(int offset, byte[] bytes) {}

  /**
   * Long inputs, and therefore their reductions, repeat after so many elements: a prime, so that no
   * block that is mixed up with another one looks right.
   */
  static final int PERIOD = 8191;

  private static final double[] SCALARS = {0.5, -1.5, 3, 0.1, -2.75, 1};

  /** All integer types have them. */
  private static final int[] INTEGER_SCALARS = {3, 127, 2, 0, 100, 1};

  final Case c;

  /**
   * {@code counts[i][j]} elements go from element {@code from[i][j]} of i to {@code to[i][j]} of j.
   */
  final int[][] counts;

  final int[][] from;
  final int[][] to;

  /**
   * Of reductions: rank r gets {@code resultCounts[r]} elements of the result from {@code
   * resultFrom[r]} on.
   */
  final int[] resultCounts;

  final int[] resultFrom;

  private final AtomicReference<byte[]>[] inputs;
  private final AtomicReference<Long> firstSum = new AtomicReference<>();
  private byte[] result;

  Oracle(Case c) {
    this.c = c;
    int n = c.nranks();
    counts = new int[n][n];
    from = new int[n][n];
    to = new int[n][n];
    resultCounts = new int[n];
    resultFrom = new int[n];
    inputs = newReferences(n);
    SplittableRandom random = new SplittableRandom(c.seed());
    if (c.op().reduces()) {
      layOutResult(random);
    } else {
      layOutTransfers(random);
    }
  }

  @SuppressWarnings({"unchecked", "rawtypes"})
  private static AtomicReference<byte[]>[] newReferences(int n) {
    AtomicReference<byte[]>[] references = new AtomicReference[n];
    for (int i = 0; i < n; i++) {
      references[i] = new AtomicReference<>();
    }
    return references;
  }

  private void layOutResult(SplittableRandom random) {
    int next = 0;
    for (int r = 0; r < c.nranks(); r++) {
      switch (c.op()) {
        case ALL_REDUCE -> resultCounts[r] = c.count();
        case REDUCE -> resultCounts[r] = r == c.root() ? c.count() : 0;
        default -> {
          resultCounts[r] = c.op() == Op.REDUCE_SCATTER ? c.count() : someCount(random);
          resultFrom[r] = next;
          next += resultCounts[r];
        }
      }
    }
  }

  private void layOutTransfers(SplittableRandom random) {
    int n = c.nranks();
    int[] perRank = new int[n];
    for (int i = 0; i < n; i++) {
      perRank[i] = someCount(random);
    }
    for (int i = 0; i < n; i++) {
      for (int j = 0; j < n; j++) {
        counts[i][j] =
            switch (c.op()) {
              case BROADCAST, SCATTER -> i == c.root() ? c.count() : 0;
              case ALL_GATHER, ALL_TO_ALL -> c.count();
              case GATHER -> j == c.root() ? c.count() : 0;
              case ALL_GATHER_V -> perRank[i];
              case GATHER_V -> j == c.root() ? perRank[i] : 0;
              case SCATTER_V -> i == c.root() ? perRank[j] : 0;
              case ALL_TO_ALL_V, EXCHANGE -> someCount(random);
              case RING -> j == (i + 1) % n ? c.count() : 0;
              case PAIRS, EAGER_PAIRS -> j == (i ^ 1) ? c.count() : 0;
              default -> 0;
            };
      }
    }
    boolean overlappingSends = c.placement() == Placement.SEPARATE && random.nextInt(4) == 0;
    for (int i = 0; i < n; i++) {
      int[] row = counts[i];
      switch (c.op()) {
        case SCATTER, ALL_TO_ALL, RING, EXCHANGE -> from[i] = packed(row);
        case ALL_TO_ALL_V, SCATTER_V ->
            from[i] = overlappingSends ? new int[n] : spread(row, random);
        default -> {}
      }
    }
    for (int j = 0; j < n; j++) {
      int[] column = new int[n];
      for (int i = 0; i < n; i++) {
        column[i] = counts[i][j];
      }
      int[] places =
          switch (c.op()) {
            case ALL_GATHER, GATHER, ALL_TO_ALL, RING, EXCHANGE -> packed(column);
            case ALL_GATHER_V, GATHER_V, ALL_TO_ALL_V -> spread(column, random);
            default -> new int[n];
          };
      for (int i = 0; i < n; i++) {
        to[i][j] = places[i];
      }
    }
  }

  private int someCount(SplittableRandom random) {
    return switch (random.nextInt(4)) {
      case 0 -> c.count();
      case 1 -> random.nextInt(c.count() + 1);
      case 2 -> random.nextInt(Math.min(c.count(), 9) + 1);
      default -> c.count() - c.count() / 3;
    };
  }

  private static int[] packed(int[] counts) {
    int[] places = new int[counts.length];
    for (int i = 1; i < counts.length; i++) {
      places[i] = places[i - 1] + counts[i - 1];
    }
    return places;
  }

  /** Places for blocks in some order with some gaps. */
  private static int[] spread(int[] counts, SplittableRandom random) {
    int n = counts.length;
    int[] places = new int[n];
    int first = random.nextInt(n);
    boolean backwards = random.nextBoolean();
    int next = random.nextInt(3);
    for (int k = 0; k < n; k++) {
      int i = backwards ? Math.floorMod(first - k, n) : (first + k) % n;
      places[i] = next;
      next += counts[i] + random.nextInt(4);
    }
    return places;
  }

  /** Whether the send argument means something on this rank. */
  boolean sends(int rank) {
    return switch (c.op()) {
      case BROADCAST, SCATTER, SCATTER_V -> rank == c.root();
      case PAIRS, EAGER_PAIRS -> (rank ^ 1) < c.nranks();
      case BARRIER -> false;
      default -> true;
    };
  }

  /** Whether the receive argument means something on this rank. */
  boolean receives(int rank) {
    return switch (c.op()) {
      case REDUCE, GATHER, GATHER_V -> rank == c.root();
      case PAIRS, EAGER_PAIRS -> (rank ^ 1) < c.nranks();
      case BARRIER -> false;
      default -> true;
    };
  }

  /** Elements of the range that this rank sends from. */
  int sendLength(int rank) {
    int length = 0;
    if (c.op().reduces()) {
      for (int r = 0; r < c.nranks(); r++) {
        length = Math.max(length, resultFrom[r] + resultCounts[r]);
      }
    }
    for (int j = 0; j < c.nranks(); j++) {
      length = Math.max(length, from[rank][j] + counts[rank][j]);
    }
    return length;
  }

  /** Elements of the range that this rank receives into. */
  int recvLength(int rank) {
    int length = resultCounts[rank];
    for (int i = 0; i < c.nranks(); i++) {
      length = Math.max(length, to[i][rank] + counts[i][rank]);
    }
    return length;
  }

  /**
   * Where an in-place rank's send range starts, relative to the receive range; negative if before
   * it.
   */
  int inPlaceSendOffset(int rank) {
    return switch (c.op()) {
      case ALL_GATHER, ALL_GATHER_V, GATHER, GATHER_V -> to[rank][rank];
      case REDUCE_SCATTER, REDUCE_SCATTER_V -> -resultFrom[rank];
      case SCATTER, SCATTER_V -> -from[rank][rank];
      default -> 0;
    };
  }

  /** Whether this rank's ranges are to overlap in the operation's own way. */
  boolean inPlace(int rank) {
    if (c.placement() != Placement.IN_PLACE || !sends(rank) || !receives(rank)) {
      return false;
    }
    return switch (c.op()) {
      case ALL_TO_ALL, ALL_TO_ALL_V -> false;
      default -> !c.op().pointToPoint();
    };
  }

  /** The contents of the range that this rank sends from; do not change them. */
  byte[] input(int rank) {
    AtomicReference<byte[]> reference = inputs[rank];
    byte[] input = reference.get();
    if (input == null) {
      // Two ranks may make it at once; it is the same.
      input = makeInput(rank);
      reference.set(input);
    }
    return input;
  }

  /** What this rank must have received. */
  List<Block> expected(int rank) {
    List<Block> blocks = new ArrayList<>();
    int size = c.type().byteSize();
    if (c.op().reduces()) {
      if (resultCounts[rank] > 0) {
        byte[] bytes = new byte[resultCounts[rank] * size];
        System.arraycopy(result(), resultFrom[rank] * size, bytes, 0, bytes.length);
        blocks.add(new Block(0, bytes));
      }
      return blocks;
    }
    for (int i = 0; i < c.nranks(); i++) {
      if (counts[i][rank] > 0) {
        byte[] bytes = new byte[counts[i][rank] * size];
        System.arraycopy(input(i), from[i][rank] * size, bytes, 0, bytes.length);
        blocks.add(new Block(to[i][rank], bytes));
      }
    }
    return blocks;
  }

  /**
   * Compares received bits with those of the ranks that came before.
   *
   * @throws AssertionError if they differ
   */
  void sameAsOthers(int rank, byte[] received) {
    long sum = checksum(received);
    if (!firstSum.compareAndSet(null, sum) && firstSum.get() != sum) {
      throw new AssertionError("rank " + rank + " has other bits than another rank");
    }
  }

  static long checksum(byte[] bytes) {
    CRC32C crc = new CRC32C();
    crc.update(bytes);
    return crc.getValue() << 20 ^ bytes.length;
  }

  /** The scalar of a rank, for {@link Case.Reduction#SCALED}. */
  double scalar(int rank) {
    int chosen = (int) Math.floorMod(c.seed() + rank, (long) SCALARS.length);
    return c.type().isFloatingPoint() ? SCALARS[chosen] : INTEGER_SCALARS[chosen];
  }

  /** The scalar of a rank, for {@link Case.Reduction#SCALED_BY_LONG}. */
  long integerScalar(int rank) {
    return switch (c.type()) {
      case INT8, UINT8 -> rank % 128;
      case INT32, UINT32 -> (1L << 30) + c.seed() % 1000 + rank;
      // Beyond what a double can hold, but a power of two apart from the last bits.
      case INT64, UINT64 -> (1L << 62) + c.seed() % 1000 + rank;
      default -> rank * 2L - 3;
    };
  }

  /** The bits of a rank's scalar, for {@link Case.Reduction#SCALED_BY_BUFFER}. */
  long scalarBits(int rank) {
    if (c.type() == DataType.FLOAT64) {
      return Double.doubleToLongBits(scalar(rank));
    }
    return c.type().isFloatingPoint()
        ? Bits.ofFloat((float) scalar(rank), c.type())
        : integerScalar(rank);
  }

  private synchronized byte[] result() {
    if (result == null) {
      byte[][] all = new byte[c.nranks()][];
      for (int r = 0; r < all.length; r++) {
        all[r] = input(r);
      }
      int count = sendLength(0);
      byte[] folded = new byte[count * c.type().byteSize()];
      for (int i = 0; i < Math.min(count, PERIOD); i++) {
        Bits.put(folded, i, c.type(), fold(all, i));
      }
      repeat(folded);
      result = folded;
    }
    return result;
  }

  /** Whether elements are combined, or at least scaled; a lone rank's are copied as they are. */
  boolean computes() {
    return c.op().reduces() && (c.nranks() > 1 || c.reduction().scaled());
  }

  /**
   * Whether a result that has other bits is right all the same: NCCL rounds at each step or fuses
   * steps, in an order of its own, and takes zeros of both signs for equal.
   */
  boolean accepts(int rank, int element, long got, long want) {
    if (TestBackend.BACKEND == Backend.HOST || !c.type().isFloatingPoint()) {
      return false;
    }
    double[] terms = new double[c.nranks()];
    int at = (resultFrom[rank] + element) % PERIOD;
    for (int r = 0; r < terms.length; r++) {
      terms[r] = value(Bits.get(input(r), at, c.type()));
      if (c.reduction().scaled()) {
        terms[r] *=
            switch (c.reduction()) {
              case SCALED -> value(number(scalar(r), c.type()));
              case SCALED_BY_LONG -> value(number(integerScalar(r), c.type()));
              default -> value(scalarBits(r));
            };
      }
    }
    return NcclRounding.of(c.type()).accepts(c.reduction(), terms, value(got), value(want));
  }

  private double value(long raw) {
    return c.type() == DataType.FLOAT64
        ? Double.longBitsToDouble(raw)
        : Bits.toFloat(raw, c.type());
  }

  private long fold(byte[][] all, int element) {
    if (!computes()) {
      return Bits.get(all[0], element, c.type());
    }
    if (c.type() == DataType.FLOAT64) {
      return foldDoubles(all, element);
    }
    return c.type().isFloatingPoint() ? foldFloats(all, element) : foldIntegers(all, element);
  }

  private long foldFloats(byte[][] all, int element) {
    DataType type = c.type();
    float sum = 0;
    for (int r = 0; r < all.length; r++) {
      float x = Bits.toFloat(Bits.get(all[r], element, type), type);
      if (c.reduction().scaled()) {
        x *=
            switch (c.reduction()) {
              case SCALED -> Bits.toFloat(Bits.ofFloat((float) scalar(r), type), type);
              case SCALED_BY_LONG -> Bits.toFloat(Bits.ofFloat(integerScalar(r), type), type);
              default -> Bits.toFloat(scalarBits(r), type);
            };
      }
      sum =
          r == 0
              ? x
              : switch (c.reduction()) {
                case PROD -> sum * x;
                case MIN -> Float.isNaN(sum) ? x : Float.isNaN(x) ? sum : Math.min(sum, x);
                case MAX -> Float.isNaN(sum) ? x : Float.isNaN(x) ? sum : Math.max(sum, x);
                default -> sum + x;
              };
    }
    if (c.reduction() == Case.Reduction.AVG) {
      sum *= 1f / all.length;
    }
    return Bits.ofFloat(sum, type);
  }

  private long foldDoubles(byte[][] all, int element) {
    double sum = 0;
    for (int r = 0; r < all.length; r++) {
      double x = Double.longBitsToDouble(Bits.get(all[r], element, c.type()));
      if (c.reduction().scaled()) {
        x *= c.reduction() == Case.Reduction.SCALED_BY_LONG ? integerScalar(r) : scalar(r);
      }
      sum =
          r == 0
              ? x
              : switch (c.reduction()) {
                case PROD -> sum * x;
                case MIN -> Double.isNaN(sum) ? x : Double.isNaN(x) ? sum : Math.min(sum, x);
                case MAX -> Double.isNaN(sum) ? x : Double.isNaN(x) ? sum : Math.max(sum, x);
                default -> sum + x;
              };
    }
    if (c.reduction() == Case.Reduction.AVG) {
      sum *= 1d / all.length;
    }
    return Double.doubleToLongBits(sum);
  }

  private long foldIntegers(byte[][] all, int element) {
    DataType type = c.type();
    boolean unsigned = type.isUnsignedInteger();
    long sum = 0;
    for (int r = 0; r < all.length; r++) {
      long x = Bits.toInteger(Bits.get(all[r], element, type), type);
      if (c.reduction().scaled()) {
        x *= c.reduction() == Case.Reduction.SCALED ? (long) scalar(r) : integerScalar(r);
      }
      long order = unsigned ? Long.compareUnsigned(sum, x) : Long.compare(sum, x);
      sum =
          r == 0
              ? x
              : switch (c.reduction()) {
                case PROD -> sum * x;
                case MIN -> order <= 0 ? sum : x;
                case MAX -> order >= 0 ? sum : x;
                default -> sum + x;
              };
    }
    sum = Bits.toInteger(sum, type);
    if (c.reduction() == Case.Reduction.AVG) {
      sum = unsigned ? Long.divideUnsigned(sum, all.length) : sum / all.length;
    }
    return sum;
  }

  private byte[] makeInput(int rank) {
    int length = sends(rank) ? sendLength(rank) : 0;
    DataType type = c.type();
    byte[] bytes = new byte[length * type.byteSize()];
    SplittableRandom random = new SplittableRandom(c.seed() * 31 + rank);
    if (c.values() == Values.ANY) {
      byte[] period = new byte[Math.min(length, PERIOD) * type.byteSize()];
      random.nextBytes(period);
      System.arraycopy(period, 0, bytes, 0, period.length);
      repeat(bytes);
      return bytes;
    }
    long[] special = special(type);
    for (int i = 0; i < Math.min(length, PERIOD); i++) {
      long raw =
          switch (c.values()) {
            case SMALL -> number(random.nextInt(9) - 4, type);
            case SPECIAL ->
                random.nextInt(8) == 0
                    ? number(random.nextInt(9) - 4, type)
                    : special[random.nextInt(special.length)];
            default ->
                type.isFloatingPoint()
                    ? number(random.nextDouble() * 8 - 4, type)
                    : random.nextLong() >> random.nextInt(64);
          };
      Bits.put(bytes, i, type, raw);
    }
    repeat(bytes);
    return bytes;
  }

  private void repeat(byte[] bytes) {
    int done = PERIOD * c.type().byteSize();
    while (done < bytes.length) {
      int more = Math.min(done, bytes.length - done);
      System.arraycopy(bytes, 0, bytes, done, more);
      done += more;
    }
  }

  private static long number(double value, DataType type) {
    if (type == DataType.FLOAT64) {
      return Double.doubleToLongBits(value);
    }
    return type.isFloatingPoint() ? Bits.ofFloat((float) value, type) : (long) value;
  }

  /** Bit patterns at the ends of a type's range. */
  private static long[] special(DataType type) {
    int bits = 8 * type.byteSize();
    long sign = 1L << (bits - 1);
    long[] positive =
        switch (type) {
          // Zero, the smallest and largest subnormal, the smallest and largest normal, 1, infinity,
          // NaN.
          case FLOAT16 -> new long[] {0, 1, 0x3ff, 0x400, 0x7bff, 0x3c00, 0x7c00, 0x7e00};
          case BFLOAT16 -> new long[] {0, 1, 0x7f, 0x80, 0x7f7f, 0x3f80, 0x7f80, 0x7fc0};
          case FLOAT8_E4M3 -> new long[] {0, 1, 7, 8, 0x7e, 0x38, 0x70, 0x7f};
          case FLOAT8_E5M2 -> new long[] {0, 1, 3, 4, 0x7b, 0x3c, 0x7c, 0x7e};
          case FLOAT32 ->
              new long[] {0, 1, 0x7fffff, 0x800000, 0x7f7fffff, 0x3f800000, 0x7f800000, 0x7fc00000};
          case FLOAT64 ->
              new long[] {
                0,
                1,
                0xfffffffffffffL,
                0x10000000000000L,
                0x7fefffffffffffffL,
                0x3ff0000000000000L,
                0x7ff0000000000000L,
                0x7ff8000000000000L
              };
          default -> new long[] {0, 1, 2, 3, sign - 1, sign - 2, sign >>> 1, 100};
        };
    long[] both = new long[2 * positive.length];
    for (int i = 0; i < positive.length; i++) {
      both[2 * i] = positive[i];
      both[2 * i + 1] = type.isFloatingPoint() ? positive[i] | sign : -positive[i] - 1;
    }
    return both;
  }
}
