package io.nccl4j;

import org.jspecify.annotations.Nullable;

/**
 * A reduction: how the elements of all ranks are combined, always in rank order 0 … n−1.
 *
 * <p><b>Arithmetic.</b> Integers wrap around. {@link DataType#FLOAT16}, {@link DataType#BFLOAT16}
 * and the 8-bit floats are accumulated in binary32 and rounded once, to nearest even, at the end
 * (NCCL rounds at each step on some paths); results beyond the range of an 8-bit float saturate to
 * its largest finite value, as CUDA's conversions do. {@link #MIN} and {@link #MAX} ignore NaN as
 * {@code fminf}/{@code fmaxf} do: the result is NaN only if every rank's element is; −0 counts as
 * smaller than +0. {@link #AVG} of floats is the sum times 1/n, both in the type of accumulation;
 * of integers it is the wrapped sum divided by n, truncated towards zero. With one rank there is
 * nothing to reduce: except for {@link #preMulSum}, its elements are copied as they are.
 *
 * <p>A reduction is an immutable value and may be shared between threads and communicators. The
 * scalar of {@link #preMulSum} may differ from rank to rank.
 */
public final class ReduceOp {
  /**
   * What a reduction computes. The order is NCCL's {@code ncclRedOp_t}, with {@link #PRE_MUL_SUM}
   * last.
   */
  public enum Kind {
    /** Sum over all ranks. */
    SUM("sum"),
    /** Product over all ranks. */
    PROD("prod"),
    /** Largest element. */
    MAX("max"),
    /** Smallest element. */
    MIN("min"),
    /** Mean over all ranks. */
    AVG("avg"),
    /** Sum of each rank's elements multiplied by that rank's scalar. */
    PRE_MUL_SUM("mulsum");

    private final String label;

    Kind(String label) {
      this.label = label;
    }

    /** The name nccl-tests uses, for example {@code sum} or {@code mulsum}. */
    public String label() {
      return label;
    }
  }

  /** Sum. */
  public static final ReduceOp SUM = new ReduceOp(Kind.SUM, 0, 0, null);

  /** Product. */
  public static final ReduceOp PROD = new ReduceOp(Kind.PROD, 0, 0, null);

  /** Maximum. */
  public static final ReduceOp MAX = new ReduceOp(Kind.MAX, 0, 0, null);

  /** Minimum. */
  public static final ReduceOp MIN = new ReduceOp(Kind.MIN, 0, 0, null);

  /** Mean. */
  public static final ReduceOp AVG = new ReduceOp(Kind.AVG, 0, 0, null);

  private final Kind kind;
  private final double scalar;
  private final long integerScalar;
  private final @Nullable DeviceBuffer deviceScalar;

  private ReduceOp(
      Kind kind, double scalar, long integerScalar, @Nullable DeviceBuffer deviceScalar) {
    this.kind = kind;
    this.scalar = scalar;
    this.integerScalar = integerScalar;
    this.deviceScalar = deviceScalar;
  }

  /**
   * A sum in which this rank's elements are first multiplied by {@code scalar}. As in NCCL, the
   * scalar has the operation's data type: for floats it is rounded to that type; for integers the
   * type must be able to represent it, or the operation is refused. Use {@link #preMulSum(long)}
   * beyond 2<sup>53</sup>.
   */
  public static ReduceOp preMulSum(double scalar) {
    long integer = (long) scalar;
    boolean exact = integer == scalar && integer != Long.MAX_VALUE;
    return new ReduceOp(Kind.PRE_MUL_SUM, scalar, exact ? integer : 0, null);
  }

  /**
   * A sum in which this rank's elements are first multiplied by the integer {@code scalar}. An
   * integer data type must be able to represent it; for others it is rounded.
   */
  public static ReduceOp preMulSum(long scalar) {
    return new ReduceOp(Kind.PRE_MUL_SUM, scalar, scalar, null);
  }

  /**
   * A sum in which this rank's elements are first multiplied by one element, of the operation's
   * data type, at the start of {@code scalar}; it is read when the operation runs, not when it is
   * called.
   *
   * @param scalar a buffer on the communicator's device; it must stay open until the operation has
   *     completed
   */
  public static ReduceOp preMulSum(DeviceBuffer scalar) {
    return new ReduceOp(Kind.PRE_MUL_SUM, 0, 0, Require.present(scalar, "scalar buffer"));
  }

  /** What this reduction computes. */
  public Kind kind() {
    return kind;
  }

  /** The scalar of {@link #preMulSum(double)}; 0 for every other reduction. */
  public double scalar() {
    return scalar;
  }

  /**
   * The scalar as an integer, exact for {@link #preMulSum(long)}; 0 for every other reduction and
   * for a scalar that is not a {@code long}.
   */
  public long integerScalar() {
    return integerScalar;
  }

  /** The buffer of {@link #preMulSum(DeviceBuffer)}; null for every other reduction. */
  public @Nullable DeviceBuffer deviceScalar() {
    return deviceScalar;
  }

  /** The name nccl-tests uses, for example {@code sum}. */
  public String label() {
    return kind.label;
  }

  /**
   * The reduction with the given nccl-tests name, except {@code mulsum}, which needs a scalar.
   *
   * @throws InvalidArgumentException if no reduction has this name; the message lists all names
   */
  public static ReduceOp ofLabel(String label) {
    for (ReduceOp op : new ReduceOp[] {SUM, PROD, MIN, MAX, AVG}) {
      if (op.kind.label.equals(label)) {
        return op;
      }
    }
    throw new InvalidArgumentException(
        "unknown reduction '" + label + "'",
        "use one of: sum, prod, min, max, avg, or ReduceOp.preMulSum for a scaled sum");
  }

  @Override
  public String toString() {
    return kind == Kind.PRE_MUL_SUM && deviceScalar == null
        ? kind.label + "(" + scalar + ")"
        : kind.label;
  }
}
