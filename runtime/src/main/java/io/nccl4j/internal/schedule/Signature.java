package io.nccl4j.internal.schedule;

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

  /** Packs what identifies an operation besides its count. */
  public static long code(OpKind kind, int type, int reduction, int root) {
    return (long) root << 32 | (long) reduction << 16 | (long) type << 8 | kind.ordinal();
  }

  /** Whether some operation has this code: it may come from another process. */
  public static boolean isCode(long code) {
    return ((int) code & 0xff) < OpKind.COUNT
        && ((int) (code >>> 8) & 0xff) < TYPES
        && ((int) (code >>> 16) & 0xffff) < REDUCTIONS;
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
    OpKind kind = OpKind.ofOrdinal((int) code & 0xff);
    if (kind == OpKind.BARRIER || kind == OpKind.WAIT_SIGNALS) {
      return kind.label() + "()";
    }
    StringBuilder text = new StringBuilder(kind.label()).append('(').append(count).append(' ');
    text.append(DataType.values()[(int) (code >>> 8) & 0xff].label());
    if (kind.isReducing()) {
      text.append(", ").append(ReduceOp.Kind.values()[(int) (code >>> 16) & 0xff].label());
    }
    if (kind.isPointToPoint()) {
      text.append(kind == OpKind.SEND ? ", to " : ", from ").append((int) (code >>> 32));
    } else if (kind.isOneSided()) {
      text.append(", to ").append((int) (code >>> 32));
    } else if (kind.isRooted()) {
      text.append(", root ").append((int) (code >>> 32));
    }
    return text.append(')').toString();
  }
}
