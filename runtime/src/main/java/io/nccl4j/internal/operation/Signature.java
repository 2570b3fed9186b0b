package io.nccl4j.internal.operation;

import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;

/**
 * What ranks compare to find out that they called different operations: 32 bits that all ranks must
 * agree on.
 *
 * <p>The signature of a collective is chained to that of the one before, so that a contradiction
 * that a one-way operation did not notice shows in the next exchange.
 */
public final class Signature {
  private static final long M1 = 0xff51afd7ed558ccdL;
  private static final long M2 = 0xc4ceb9fe1a85ec53L;

  private static final int TYPES = DataType.values().length;
  private static final int REDUCTIONS = ReduceOp.Kind.values().length;

  /** See {@link #chain}. */
  public static final int FACTOR = 0x9e3779b1;

  private Signature() {}

  /** Packs what identifies an operation besides its count. No operation has code 0. */
  public static long code(Operation operation, int type, int reduction, int root) {
    return (long) root << 32 | (long) reduction << 16 | (long) type << 8 | operation.number() + 1;
  }

  /** The operation of a code. */
  public static Operation operation(long code) {
    return Operation.of(((int) code & 0xff) - 1);
  }

  /** Whether some operation has this code: it may come from another process. */
  public static boolean isCode(long code) {
    int number = ((int) code & 0xff) - 1;
    return number >= 0
        && number < Operation.count()
        && ((int) (code >>> 8) & 0xff) < TYPES
        && ((int) (code >>> 16) & 0xffff) < REDUCTIONS;
  }

  /**
   * Whether two ranks' calls can be the same collective; the counts of v-forms differ from rank to
   * rank.
   */
  public static boolean agree(long code, long count, long otherCode, long otherCount) {
    return code == otherCode && (count == otherCount || isCode(code) && operation(code).varies());
  }

  /** What an operation adds to the signature of the one before. */
  public static int of(long code, long count) {
    long h = code * M1 + count;
    h ^= h >>> 32;
    h *= M2;
    return (int) (h ^ h >>> 32);
  }

  /**
   * The signature of an operation that follows one with signature {@code previous}. Linear in that,
   * with an odd factor: a difference never vanishes by equal calls that follow, and the signatures
   * of a graph's operations follow from that of the one before the launch.
   */
  public static int chain(int previous, int own) {
    return previous * FACTOR + own;
  }

  /** Folds an array of counts into one count for {@link #chain}. */
  public static long ofCounts(long[] counts, int length) {
    long h = length;
    for (int i = 0; i < length; i++) {
      h = (h ^ counts[i]) * M1;
      h ^= h >>> 29;
    }
    return h;
  }

  /** An operation in words, for example {@code allReduce(1024 float, sum)}. */
  public static String describe(long code, long count) {
    if (!isCode(code)) {
      return "an unknown operation";
    }
    Operation operation = operation(code);
    if (operation.sent() == Shape.NOTHING && !operation.isRooted()) {
      return operation.label() + "()";
    }
    StringBuilder text = new StringBuilder(operation.label()).append('(').append(count).append(' ');
    text.append(DataType.values()[(int) (code >>> 8) & 0xff].label());
    if (operation.reducing()) {
      text.append(", ").append(ReduceOp.Kind.values()[(int) (code >>> 16) & 0xff].label());
    }
    if (operation.isRooted()) {
      String name =
          operation.isCollective() ? "root" : operation.senders() == Party.PEER ? "from" : "to";
      text.append(", ").append(name).append(' ').append((int) (code >>> 32));
    }
    return text.append(')').toString();
  }
}
