package io.nccl4j.internal.host.kernel;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_FLOAT_UNALIGNED;
import static java.lang.foreign.ValueLayout.JAVA_INT_UNALIGNED;
import static java.lang.foreign.ValueLayout.JAVA_SHORT_UNALIGNED;

import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import io.nccl4j.internal.spi.SmallFloats;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/** Sums and products of all floats that are accumulated in binary32. */
final class FloatFold extends BlockFold {
  private final SmallFloats.Float8 float8;

  FloatFold(DataType type, ReduceOp.Kind kind) {
    super(type, kind);
    float8 = type == DataType.FLOAT8_E4M3 ? SmallFloats.Float8.E4M3 : SmallFloats.Float8.E5M2;
  }

  /** The commonest case, a sum of few floats, without looking at each what it is. */
  @Override
  void foldFew(
      MemorySegment[] in,
      long[] inOffset,
      int n,
      MemorySegment[] out,
      long[] outOffset,
      int m,
      long shift,
      int count,
      long @Nullable [] scalars) {
    if (type != DataType.FLOAT32 || kind != ReduceOp.Kind.SUM || m != 1) {
      super.foldFew(in, inOffset, n, out, outOffset, m, shift, count, scalars);
      return;
    }
    for (long at = shift; at < shift + (long) count * Float.BYTES; at += Float.BYTES) {
      float sum = in[0].get(JAVA_FLOAT_UNALIGNED, inOffset[0] + at);
      for (int k = 1; k < n; k++) {
        sum += in[k].get(JAVA_FLOAT_UNALIGNED, inOffset[k] + at);
      }
      out[0].set(JAVA_FLOAT_UNALIGNED, outOffset[0] + at, sum != sum ? Float.NaN : sum);
    }
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
    float accumulator = get(in[0], inOffset[0] + shift);
    if (scalars != null) {
      accumulator *= scalar(scalars[0]);
    }
    for (int k = 1; k < n; k++) {
      float operand = get(in[k], inOffset[k] + shift);
      if (kind == ReduceOp.Kind.PROD) {
        accumulator *= operand;
      } else {
        accumulator += scalars == null ? operand : operand * scalar(scalars[k]);
      }
    }
    if (kind == ReduceOp.Kind.AVG) {
      accumulator *= 1f / n;
    }
    for (int o = 0; o < m; o++) {
      set(out[o], outOffset[o] + shift, accumulator);
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
    float[] accumulator = scratch.floatAccumulator();
    float[] operand = scratch.floatOperand();
    load(in[0], inOffset[0] + shift, accumulator, count, scratch);
    if (scalars != null) {
      scale(accumulator, scalar(scalars[0]), turns);
    }
    for (int k = 1; k < n; k++) {
      load(in[k], inOffset[k] + shift, operand, count, scratch);
      if (kind == ReduceOp.Kind.PROD) {
        multiply(accumulator, operand, turns);
      } else if (scalars == null) {
        add(accumulator, operand, turns);
      } else {
        addScaled(accumulator, operand, scalar(scalars[k]), turns);
      }
    }
    if (kind == ReduceOp.Kind.AVG) {
      scale(accumulator, 1f / n, turns);
    }
    store(accumulator, out, outOffset, m, shift, count, scratch);
  }

  private static float scalar(long raw) {
    return (float) Double.longBitsToDouble(raw);
  }

  private static void add(float[] accumulator, float[] operand, int count) {
    for (int i = 0; i < count; i++) {
      accumulator[i] += operand[i];
    }
  }

  private static void addScaled(float[] accumulator, float[] operand, float scalar, int count) {
    for (int i = 0; i < count; i++) {
      accumulator[i] += operand[i] * scalar;
    }
  }

  private static void multiply(float[] accumulator, float[] operand, int count) {
    for (int i = 0; i < count; i++) {
      accumulator[i] *= operand[i];
    }
  }

  private static void scale(float[] accumulator, float scalar, int count) {
    for (int i = 0; i < count; i++) {
      accumulator[i] *= scalar;
    }
  }

  private static void narrowToBfloats(float[] values, short[] bfloats, int count) {
    for (int i = 0; i < count; i++) {
      bfloats[i] = SmallFloats.toBfloat16(values[i]);
    }
  }

  /** Nothing but the conversion, which has an instruction: any more and it would not vectorise. */
  private static void narrowToHalves(float[] values, short[] halves, int count) {
    for (int i = 0; i < count; i++) {
      halves[i] = Float.floatToFloat16(values[i]);
    }
  }

  /** Whether one of the halves is NaN, of which each int has two; loops over shorts are slow. */
  private static boolean hasNan(int[] pairs, int count) {
    int found = 0;
    for (int i = 0; i < count; i++) {
      int pair = pairs[i];
      found |= 0x7c00 - (pair & 0x7fff) | 0x7c00 - (pair >>> 16 & 0x7fff);
    }
    return found < 0;
  }

  private static void canonicaliseHalves(short[] halves, int count) {
    for (int i = 0; i < count; i++) {
      if ((halves[i] & 0x7fff) > 0x7c00) {
        halves[i] = 0x7e00;
      }
    }
  }

  private static void canonicalise(int[] bits, int count) {
    for (int i = 0; i < count; i++) {
      int nan = (0x7f800000 - (bits[i] & Integer.MAX_VALUE)) >> 31;
      bits[i] = bits[i] & ~nan | 0x7fc00000 & nan;
    }
  }

  private float get(MemorySegment segment, long offset) {
    return switch (type) {
      case FLOAT32 -> segment.get(JAVA_FLOAT_UNALIGNED, offset);
      case FLOAT16 -> Float.float16ToFloat(segment.get(JAVA_SHORT_UNALIGNED, offset));
      case BFLOAT16 -> SmallFloats.fromBfloat16(segment.get(JAVA_SHORT_UNALIGNED, offset));
      default -> float8.toFloat(segment.get(JAVA_BYTE, offset));
    };
  }

  private void set(MemorySegment segment, long offset, float value) {
    switch (type) {
      case FLOAT32 -> segment.set(JAVA_FLOAT_UNALIGNED, offset, value != value ? Float.NaN : value);
      case FLOAT16 -> segment.set(JAVA_SHORT_UNALIGNED, offset, SmallFloats.toFloat16(value));
      case BFLOAT16 -> segment.set(JAVA_SHORT_UNALIGNED, offset, SmallFloats.toBfloat16(value));
      default -> segment.set(JAVA_BYTE, offset, float8.fromFloat(value));
    }
  }

  private void load(
      MemorySegment segment, long offset, float[] values, int count, Scratch scratch) {
    switch (type) {
      case FLOAT32 -> MemorySegment.copy(segment, JAVA_FLOAT_UNALIGNED, offset, values, 0, count);
      case FLOAT16 -> {
        short[] raw = scratch.shorts();
        MemorySegment.copy(segment, JAVA_SHORT_UNALIGNED, offset, raw, 0, count);
        SmallFloats.fromFloat16(raw, 0, values, 0, turns(count));
      }
      case BFLOAT16 -> {
        short[] raw = scratch.shorts();
        MemorySegment.copy(segment, JAVA_SHORT_UNALIGNED, offset, raw, 0, count);
        SmallFloats.fromBfloat16(raw, 0, values, 0, turns(count));
      }
      default -> {
        byte[] raw = scratch.bytes();
        MemorySegment.copy(segment, JAVA_BYTE, offset, raw, 0, count);
        float8.toFloats(raw, values, turns(count));
      }
    }
  }

  private void store(
      float[] values,
      MemorySegment[] out,
      long[] outOffset,
      int m,
      long shift,
      int count,
      Scratch scratch) {
    switch (type) {
      case FLOAT32 -> {
        int[] bits = scratch.intAccumulator();
        MemorySegment.copy(scratch.floatBits(), JAVA_INT_UNALIGNED, 0, bits, 0, count);
        canonicalise(bits, turns(count));
        for (int o = 0; o < m; o++) {
          MemorySegment.copy(bits, 0, out[o], JAVA_INT_UNALIGNED, outOffset[o] + shift, count);
        }
      }
      case FLOAT16, BFLOAT16 -> {
        short[] raw = scratch.shorts();
        int[] pairs = scratch.intAccumulator();
        if (type == DataType.FLOAT16) {
          narrowToHalves(values, raw, turns(count));
          int turns = turns(count);
          MemorySegment.copy(scratch.shortBits(), JAVA_INT_UNALIGNED, 0, pairs, 0, turns >> 1);
          if (hasNan(pairs, turns >> 1)) {
            canonicaliseHalves(raw, turns);
          }
        } else {
          narrowToBfloats(values, raw, turns(count));
        }
        for (int o = 0; o < m; o++) {
          MemorySegment.copy(raw, 0, out[o], JAVA_SHORT_UNALIGNED, outOffset[o] + shift, count);
        }
      }
      default -> {
        byte[] raw = scratch.bytes();
        float8.fromFloats(values, raw, turns(count));
        for (int o = 0; o < m; o++) {
          MemorySegment.copy(raw, 0, out[o], JAVA_BYTE, outOffset[o] + shift, count);
        }
      }
    }
  }
}
