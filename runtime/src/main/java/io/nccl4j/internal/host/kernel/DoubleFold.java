package io.nccl4j.internal.host.kernel;

import static java.lang.foreign.ValueLayout.JAVA_DOUBLE_UNALIGNED;
import static java.lang.foreign.ValueLayout.JAVA_LONG_UNALIGNED;

import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/** Sums and products of {@link DataType#FLOAT64}. */
final class DoubleFold extends BlockFold {
  DoubleFold(DataType type, ReduceOp.Kind kind) {
    super(type, kind);
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
    double accumulator = in[0].get(JAVA_DOUBLE_UNALIGNED, inOffset[0] + shift);
    if (scalars != null) {
      accumulator *= Double.longBitsToDouble(scalars[0]);
    }
    for (int k = 1; k < n; k++) {
      double operand = in[k].get(JAVA_DOUBLE_UNALIGNED, inOffset[k] + shift);
      if (kind == ReduceOp.Kind.PROD) {
        accumulator *= operand;
      } else {
        accumulator += scalars == null ? operand : operand * Double.longBitsToDouble(scalars[k]);
      }
    }
    if (kind == ReduceOp.Kind.AVG) {
      accumulator *= 1d / n;
    }
    if (accumulator != accumulator) {
      accumulator = Double.NaN;
    }
    for (int o = 0; o < m; o++) {
      out[o].set(JAVA_DOUBLE_UNALIGNED, outOffset[o] + shift, accumulator);
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
    double[] accumulator = scratch.doubleAccumulator();
    double[] operand = scratch.doubleOperand();
    MemorySegment.copy(in[0], JAVA_DOUBLE_UNALIGNED, inOffset[0] + shift, accumulator, 0, count);
    if (scalars != null) {
      scale(accumulator, Double.longBitsToDouble(scalars[0]), turns);
    }
    for (int k = 1; k < n; k++) {
      MemorySegment.copy(in[k], JAVA_DOUBLE_UNALIGNED, inOffset[k] + shift, operand, 0, count);
      if (kind == ReduceOp.Kind.PROD) {
        multiply(accumulator, operand, turns);
      } else if (scalars == null) {
        add(accumulator, operand, turns);
      } else {
        addScaled(accumulator, operand, Double.longBitsToDouble(scalars[k]), turns);
      }
    }
    if (kind == ReduceOp.Kind.AVG) {
      scale(accumulator, 1d / n, turns);
    }
    long[] bits = scratch.longAccumulator();
    MemorySegment.copy(scratch.doubleBits(), JAVA_LONG_UNALIGNED, 0, bits, 0, count);
    canonicalise(bits, turns);
    for (int o = 0; o < m; o++) {
      MemorySegment.copy(bits, 0, out[o], JAVA_LONG_UNALIGNED, outOffset[o] + shift, count);
    }
  }

  private static void canonicalise(long[] bits, int count) {
    for (int i = 0; i < count; i++) {
      long nan = (0x7ff0000000000000L - (bits[i] & Long.MAX_VALUE)) >> 63;
      bits[i] = bits[i] & ~nan | 0x7ff8000000000000L & nan;
    }
  }

  private static void add(double[] accumulator, double[] operand, int count) {
    for (int i = 0; i < count; i++) {
      accumulator[i] += operand[i];
    }
  }

  private static void addScaled(double[] accumulator, double[] operand, double scalar, int count) {
    for (int i = 0; i < count; i++) {
      accumulator[i] += operand[i] * scalar;
    }
  }

  private static void multiply(double[] accumulator, double[] operand, int count) {
    for (int i = 0; i < count; i++) {
      accumulator[i] *= operand[i];
    }
  }

  private static void scale(double[] accumulator, double scalar, int count) {
    for (int i = 0; i < count; i++) {
      accumulator[i] *= scalar;
    }
  }
}
