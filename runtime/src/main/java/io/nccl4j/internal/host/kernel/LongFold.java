package io.nccl4j.internal.host.kernel;

import static java.lang.foreign.ValueLayout.JAVA_LONG_UNALIGNED;

import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/**
 * Everything that is folded in a long: all reductions of 64-bit integers, and MIN and MAX of {@link
 * DataType#FLOAT64}, on keys as in {@link IntFold}.
 */
final class LongFold extends BlockFold {
  private static final long INFINITY = 0x7ff0000000000000L;
  private static final long NAN = 0x7ff8000000000000L;

  private final boolean floating;
  private final boolean flipped;
  private final long nanKey;

  LongFold(DataType type, ReduceOp.Kind kind) {
    super(type, kind);
    boolean extreme = kind == ReduceOp.Kind.MIN || kind == ReduceOp.Kind.MAX;
    floating = type.isFloatingPoint();
    flipped = extreme && type == DataType.UINT64;
    nanKey = kind == ReduceOp.Kind.MIN ? Long.MAX_VALUE : Long.MIN_VALUE;
  }

  @Override
  void foldElement(
      MemorySegment[] in,
      long[] inOffset,
      int n,
      MemorySegment[] out,
      long[] outOffset,
      int m,
      long shift,
      long @Nullable [] scalars) {
    long accumulator = toKey(in[0].get(JAVA_LONG_UNALIGNED, inOffset[0] + shift));
    if (scalars != null) {
      accumulator *= scalars[0];
    }
    for (int k = 1; k < n; k++) {
      long operand = toKey(in[k].get(JAVA_LONG_UNALIGNED, inOffset[k] + shift));
      accumulator =
          switch (kind) {
            case PROD -> accumulator * operand;
            case MIN -> Math.min(accumulator, operand);
            case MAX -> Math.max(accumulator, operand);
            default -> accumulator + (scalars == null ? operand : operand * scalars[k]);
          };
    }
    long result = kind == ReduceOp.Kind.AVG ? average(accumulator, n) : fromKey(accumulator);
    for (int o = 0; o < m; o++) {
      out[o].set(JAVA_LONG_UNALIGNED, outOffset[o] + shift, result);
    }
  }

  @Override
  void foldBlock(
      MemorySegment[] in,
      long[] inOffset,
      int n,
      MemorySegment[] out,
      long[] outOffset,
      int m,
      long shift,
      int count,
      long @Nullable [] scalars,
      Scratch scratch) {
    int turns = turns(count);
    long[] accumulator = scratch.longAccumulator();
    long[] operand = scratch.longOperand();
    load(in[0], inOffset[0] + shift, accumulator, count);
    if (scalars != null) {
      scale(accumulator, scalars[0], turns);
    }
    for (int k = 1; k < n; k++) {
      load(in[k], inOffset[k] + shift, operand, count);
      switch (kind) {
        case PROD -> multiply(accumulator, operand, turns);
        case MIN -> minimum(accumulator, operand, turns);
        case MAX -> maximum(accumulator, operand, turns);
        default -> {
          if (scalars == null) {
            add(accumulator, operand, turns);
          } else {
            addScaled(accumulator, operand, scalars[k], turns);
          }
        }
      }
    }
    if (kind == ReduceOp.Kind.AVG) {
      for (int i = 0; i < count; i++) {
        accumulator[i] = average(accumulator[i], n);
      }
    } else if (flipped) {
      flip(accumulator, turns);
    } else if (floating) {
      fromKeys(accumulator, turns);
    }
    for (int o = 0; o < m; o++) {
      MemorySegment.copy(accumulator, 0, out[o], JAVA_LONG_UNALIGNED, outOffset[o] + shift, count);
    }
  }

  private static void add(long[] accumulator, long[] operand, int count) {
    for (int i = 0; i < count; i++) {
      accumulator[i] += operand[i];
    }
  }

  private static void addScaled(long[] accumulator, long[] operand, long scalar, int count) {
    for (int i = 0; i < count; i++) {
      accumulator[i] += operand[i] * scalar;
    }
  }

  private static void multiply(long[] accumulator, long[] operand, int count) {
    for (int i = 0; i < count; i++) {
      accumulator[i] *= operand[i];
    }
  }

  private static void scale(long[] accumulator, long scalar, int count) {
    for (int i = 0; i < count; i++) {
      accumulator[i] *= scalar;
    }
  }

  private static void minimum(long[] accumulator, long[] operand, int count) {
    for (int i = 0; i < count; i++) {
      accumulator[i] = Math.min(accumulator[i], operand[i]);
    }
  }

  private static void maximum(long[] accumulator, long[] operand, int count) {
    for (int i = 0; i < count; i++) {
      accumulator[i] = Math.max(accumulator[i], operand[i]);
    }
  }

  private long average(long sum, int n) {
    return type == DataType.UINT64 ? Long.divideUnsigned(sum, n) : sum / n;
  }

  private void load(MemorySegment segment, long offset, long[] values, int count) {
    MemorySegment.copy(segment, JAVA_LONG_UNALIGNED, offset, values, 0, count);
    if (flipped) {
      flip(values, turns(count));
    } else if (floating) {
      toKeys(values, turns(count));
    }
  }

  private static void flip(long[] values, int count) {
    for (int i = 0; i < count; i++) {
      values[i] ^= Long.MIN_VALUE;
    }
  }

  private void toKeys(long[] values, int count) {
    for (int i = 0; i < count; i++) {
      values[i] = toKey(values[i]);
    }
  }

  private void fromKeys(long[] values, int count) {
    for (int i = 0; i < count; i++) {
      values[i] = fromKey(values[i]);
    }
  }

  private long toKey(long raw) {
    if (flipped) {
      return raw ^ Long.MIN_VALUE;
    }
    if (!floating) {
      return raw;
    }
    long isNan = (INFINITY - (raw & Long.MAX_VALUE)) >> 63;
    return (raw ^ raw >> 63 & Long.MAX_VALUE) & ~isNan | nanKey & isNan;
  }

  private long fromKey(long key) {
    if (flipped) {
      return key ^ Long.MIN_VALUE;
    }
    if (!floating) {
      return key;
    }
    long difference = key ^ nanKey;
    long notNan = (difference | -difference) >> 63;
    return (key ^ key >> 63 & Long.MAX_VALUE) & notNan | NAN & ~notNan;
  }
}
