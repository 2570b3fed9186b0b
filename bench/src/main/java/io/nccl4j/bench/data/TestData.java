package io.nccl4j.bench.data;

import io.nccl4j.Backend;
import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;

/**
 * Inputs of a reduction whose result is known exactly, whatever the order of the ranks and wherever
 * the runtime rounds.
 *
 * <ul>
 *   <li>Integers are random bits and wrap around; products are of odd numbers, which never vanish;
 *       averages are of numbers small enough not to wrap.
 *   <li>Sums of floats are of integers whose absolute values together fit the significand; if there
 *       are more ranks than the significand counts, only some are not 0, others in each column.
 *   <li>Products of floats are of powers of two, within the range of exponents, and one number with
 *       a full significand.
 *   <li>Averages of floats are of at most two positive numbers. They are exact if the number of
 *       ranks is a power of two; otherwise the host's arithmetic (sum times 1/n, rounded once) is
 *       known, and on {@code cuda}, where NCCL scales first, {@value #CUDA_AVG_ULPS} units in the
 *       last place are allowed, as in nccl-tests.
 *   <li>Scaled sums have the scalar 1 on even and 2 on odd ranks.
 *   <li>Minima and maxima are of normal numbers: never NaN, never zero.
 * </ul>
 *
 * <p>Immutable; may be shared between threads.
 */
public final class TestData {
  /** Tolerance of averages on {@code cuda} if the number of ranks is no power of two. */
  static final int CUDA_AVG_ULPS = 2;

  private final DataType type;
  private final ReduceOp.Kind op;
  private final int nranks;
  private final int tolerance;
  private final long[] reduced;

  /** Data for a reduction of {@code nranks} ranks. */
  public TestData(DataType type, ReduceOp.Kind op, int nranks, Backend backend) {
    this.type = type;
    this.op = op;
    this.nranks = nranks;
    boolean inexact =
        op == ReduceOp.Kind.AVG && type.isFloatingPoint() && Integer.bitCount(nranks) != 1;
    this.tolerance = inexact && backend == Backend.CUDA ? CUDA_AVG_ULPS : 0;
    this.reduced = new long[Pattern.COLUMNS];
    long[] inputs = new long[nranks];
    for (int column = 0; column < Pattern.COLUMNS; column++) {
      for (int rank = 0; rank < nranks; rank++) {
        inputs[rank] = inputBits(column, rank);
      }
      reduced[column] =
          type.isFloatingPoint()
              ? ExactFold.floats(type, op, inputs)
              : ExactFold.integers(type, op, inputs);
    }
  }

  /** The reduction as {@code rank} passes it to a collective. */
  public static ReduceOp reduceOp(ReduceOp.Kind op, int rank) {
    return op == ReduceOp.Kind.PRE_MUL_SUM
        ? ReduceOp.preMulSum((double) scalar(rank))
        : ReduceOp.ofLabel(op.label());
  }

  /** The scalar of {@code rank} in a scaled sum. */
  static int scalar(int rank) {
    return 1 + rank % 2;
  }

  /** Random bits of a type, for collectives that only move data. */
  public static Pattern bits(DataType type, long seed) {
    long[] bits = new long[Pattern.COLUMNS];
    for (int column = 0; column < bits.length; column++) {
      bits[column] = Mix.of(column) & Elements.mask(type);
    }
    return new Pattern(type, bits, seed, 0);
  }

  /** What {@code rank} contributes. */
  public Pattern input(int rank, long seed) {
    long[] bits = new long[Pattern.COLUMNS];
    for (int column = 0; column < bits.length; column++) {
      bits[column] = inputBits(column, rank);
    }
    return new Pattern(type, bits, seed, 0);
  }

  /** What the reduction of all ranks' {@link #input} with the same seed must give. */
  public Pattern reduced(long seed) {
    return new Pattern(type, reduced, seed, tolerance);
  }

  private long inputBits(int column, int rank) {
    long hash = Mix.of(column, rank, op.ordinal());
    return type.isFloatingPoint() ? floatBits(column, rank, hash) : integerBits(column, rank, hash);
  }

  private long integerBits(int column, int rank, long hash) {
    long mask = Elements.mask(type);
    return switch (op) {
      case SUM, MAX, MIN, PRE_MUL_SUM -> hash & mask;
      case PROD -> (hash | 1) & mask;
      case AVG -> {
        if (type.isUnsignedInteger()) {
          // Random within an even share of the type's range, which may be all of a long.
          yield Mix.upTo(Long.divideUnsigned(mask, nranks), hash) & mask;
        }
        yield share(mask >>> 1, column, rank, hash) & mask;
      }
    };
  }

  private long floatBits(int column, int rank, long hash) {
    long budget = 1L << Elements.precision(type);
    return switch (op) {
      case SUM -> Elements.encode(type, share(budget, column, rank, hash));
      case PRE_MUL_SUM -> Elements.encode(type, share(budget / 2, column, rank, hash));
      case AVG -> Elements.encode(type, averageInput(budget, column, rank, hash));
      case PROD -> Elements.encode(type, factor(column, rank, hash));
      case MAX, MIN -> normal(hash);
    };
  }

  /** An integer of either sign; absolute values of all ranks together are at most the budget. */
  private long share(long budget, int column, int rank, long hash) {
    long most = budget / nranks;
    if (most > 0) {
      return Mix.upTo(2 * most, hash) - most;
    }
    return (rank + column) % nranks < budget ? (hash & 2) - 1 : 0;
  }

  private double averageInput(long budget, int column, int rank, long hash) {
    int first = column % nranks;
    int second = (int) ((first + 1 + Mix.upTo(Math.max(0, nranks - 2), Mix.of(column))) % nranks);
    if (rank != first && rank != second) {
      return 0;
    }
    long value = 1 + Mix.upTo(budget / 2 - 1, hash);
    // Room below for the division by n, which half of E4M3's few exponents would not give.
    return type == DataType.FLOAT8_E4M3 ? value * 16.0 : value;
  }

  private double factor(int column, int rank, long hash) {
    int exponentBudget = (1 << (Elements.exponentBits(type) - 1)) - 2;
    double value = Math.scalb(1.0, (int) share(exponentBudget, column, rank, hash >>> 8));
    if (rank == column % nranks) {
      int fractionBits = Elements.precision(type) - 1;
      long fraction = Mix.of(hash) & ((1L << fractionBits) - 1);
      value *= 1 + Math.scalb((double) fraction, -fractionBits);
    }
    return (hash & 1) == 0 ? value : -value;
  }

  /** A random normal number: neither zero nor subnormal, infinite or NaN. */
  private long normal(long hash) {
    int fractionBits = Elements.precision(type) - 1;
    long exponents = (1L << Elements.exponentBits(type)) - 2;
    long exponent = 1 + Mix.upTo(exponents - 1, Mix.of(hash));
    long signAndFraction = hash & Elements.mask(type) & ~((exponents + 1) << fractionBits);
    return signAndFraction | exponent << fractionBits;
  }
}
