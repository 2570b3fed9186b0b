package io.nccl4j.internal.host.kernel;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT_UNALIGNED;
import static java.lang.foreign.ValueLayout.JAVA_SHORT_UNALIGNED;

import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/**
 * Everything that is folded in an int: all reductions of integers of up to 32 bits, and MIN and MAX
 * of floats of up to 32 bits.
 *
 * <p>Extremes of floats are found on keys: ints in the order of the values, with −0 just below +0
 * and every NaN where it loses. Loops over them need no branch for NaN, so they vectorise.
 */
final class IntFold extends BlockFold {
  private final boolean floating;
  private final boolean flipped;

  // Of floats: the bits below the sign, infinity or the bits just below NaN, the largest result.
  private final int magnitudeMask;
  private final int infinity;
  private final int largest;
  private final int nan;
  private final int nanKey;

  IntFold(DataType type, ReduceOp.Kind kind) {
    super(type, kind);
    boolean extreme = kind == ReduceOp.Kind.MIN || kind == ReduceOp.Kind.MAX;
    floating = type.isFloatingPoint();
    flipped = extreme && type == DataType.UINT32;
    magnitudeMask = -1 >>> Integer.SIZE - type.byteSize() * Byte.SIZE + 1;
    nanKey = kind == ReduceOp.Kind.MIN ? Integer.MAX_VALUE : Integer.MIN_VALUE;
    switch (type) {
      case FLOAT16 -> {
        infinity = 0x7c00;
        largest = infinity;
        nan = 0x7e00;
      }
      case BFLOAT16 -> {
        infinity = 0x7f80;
        largest = infinity;
        nan = 0x7fc0;
      }
      case FLOAT8_E4M3 -> {
        infinity = 0x7e;
        largest = infinity;
        nan = 0x7f;
      }
      case FLOAT8_E5M2 -> {
        infinity = 0x7c;
        largest = 0x7b;
        nan = 0x7f;
      }
      default -> {
        infinity = 0x7f800000;
        largest = infinity;
        nan = 0x7fc00000;
      }
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
    int accumulator = get(in[0], inOffset[0] + shift);
    if (scalars != null) {
      accumulator *= (int) scalars[0];
    }
    for (int k = 1; k < n; k++) {
      int operand = get(in[k], inOffset[k] + shift);
      accumulator =
          switch (kind) {
            case PROD -> accumulator * operand;
            case MIN -> Math.min(accumulator, operand);
            case MAX -> Math.max(accumulator, operand);
            default -> accumulator + (scalars == null ? operand : operand * (int) scalars[k]);
          };
    }
    int result = kind == ReduceOp.Kind.AVG ? average(accumulator, n) : fromKey(accumulator);
    for (int o = 0; o < m; o++) {
      set(out[o], outOffset[o] + shift, result);
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
    int[] accumulator = scratch.intAccumulator();
    int[] operand = scratch.intOperand();
    load(in[0], inOffset[0] + shift, accumulator, count, scratch);
    if (scalars != null) {
      scale(accumulator, (int) scalars[0], turns);
    }
    for (int k = 1; k < n; k++) {
      load(in[k], inOffset[k] + shift, operand, count, scratch);
      switch (kind) {
        case PROD -> multiply(accumulator, operand, turns);
        case MIN -> minimum(accumulator, operand, turns);
        case MAX -> maximum(accumulator, operand, turns);
        default -> {
          if (scalars == null) {
            add(accumulator, operand, turns);
          } else {
            addScaled(accumulator, operand, (int) scalars[k], turns);
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
    store(accumulator, out, outOffset, m, shift, count, scratch);
  }

  private static void add(int[] accumulator, int[] operand, int count) {
    for (int i = 0; i < count; i++) {
      accumulator[i] += operand[i];
    }
  }

  private static void addScaled(int[] accumulator, int[] operand, int scalar, int count) {
    for (int i = 0; i < count; i++) {
      accumulator[i] += operand[i] * scalar;
    }
  }

  private static void multiply(int[] accumulator, int[] operand, int count) {
    for (int i = 0; i < count; i++) {
      accumulator[i] *= operand[i];
    }
  }

  private static void scale(int[] accumulator, int scalar, int count) {
    for (int i = 0; i < count; i++) {
      accumulator[i] *= scalar;
    }
  }

  private static void minimum(int[] accumulator, int[] operand, int count) {
    for (int i = 0; i < count; i++) {
      accumulator[i] = Math.min(accumulator[i], operand[i]);
    }
  }

  private static void maximum(int[] accumulator, int[] operand, int count) {
    for (int i = 0; i < count; i++) {
      accumulator[i] = Math.max(accumulator[i], operand[i]);
    }
  }

  private int average(int sum, int n) {
    return switch (type) {
      case INT8 -> (byte) sum / n;
      case UINT8 -> (sum & 0xff) / n;
      case UINT32 -> Integer.divideUnsigned(sum, n);
      default -> sum / n;
    };
  }

  /** The key of an element that was widened with its sign. */
  private int toKey(int raw) {
    if (flipped) {
      return raw ^ Integer.MIN_VALUE;
    }
    if (!floating) {
      return raw;
    }
    int isNan = (infinity - (raw & magnitudeMask)) >> 31;
    return (raw ^ raw >> 31 & magnitudeMask) & ~isNan | nanKey & isNan;
  }

  private int fromKey(int key) {
    if (flipped) {
      return key ^ Integer.MIN_VALUE;
    }
    if (!floating) {
      return key;
    }
    int difference = key ^ nanKey;
    int notNan = (difference | -difference) >> 31;
    int clamped = Math.max(~largest, Math.min(key, largest));
    return (clamped ^ clamped >> 31 & magnitudeMask) & notNan | nan & ~notNan;
  }

  private int get(MemorySegment segment, long offset) {
    int raw =
        switch (type) {
          case UINT8 -> segment.get(JAVA_BYTE, offset) & 0xff;
          case INT8, FLOAT8_E4M3, FLOAT8_E5M2 -> segment.get(JAVA_BYTE, offset);
          case FLOAT16, BFLOAT16 -> segment.get(JAVA_SHORT_UNALIGNED, offset);
          default -> segment.get(JAVA_INT_UNALIGNED, offset);
        };
    return toKey(raw);
  }

  private void set(MemorySegment segment, long offset, int value) {
    switch (type.byteSize()) {
      case Byte.BYTES -> segment.set(JAVA_BYTE, offset, (byte) value);
      case Short.BYTES -> segment.set(JAVA_SHORT_UNALIGNED, offset, (short) value);
      default -> segment.set(JAVA_INT_UNALIGNED, offset, value);
    }
  }

  private void load(MemorySegment segment, long offset, int[] values, int count, Scratch scratch) {
    switch (type.byteSize()) {
      case Byte.BYTES -> {
        byte[] raw = scratch.bytes();
        MemorySegment.copy(segment, JAVA_BYTE, offset, raw, 0, count);
        widen(raw, values, type == DataType.UINT8 ? 0xff : -1, turns(count));
      }
      case Short.BYTES -> {
        short[] raw = scratch.shorts();
        MemorySegment.copy(segment, JAVA_SHORT_UNALIGNED, offset, raw, 0, count);
        widen(raw, values, turns(count));
      }
      default -> MemorySegment.copy(segment, JAVA_INT_UNALIGNED, offset, values, 0, count);
    }
    if (flipped) {
      flip(values, turns(count));
    } else if (floating) {
      toKeys(values, turns(count));
    }
  }

  private static void flip(int[] values, int count) {
    for (int i = 0; i < count; i++) {
      values[i] ^= Integer.MIN_VALUE;
    }
  }

  private void toKeys(int[] values, int count) {
    for (int i = 0; i < count; i++) {
      values[i] = toKey(values[i]);
    }
  }

  private void fromKeys(int[] values, int count) {
    for (int i = 0; i < count; i++) {
      values[i] = fromKey(values[i]);
    }
  }

  private static void widen(byte[] raw, int[] values, int kept, int count) {
    for (int i = 0; i < count; i++) {
      values[i] = raw[i] & kept;
    }
  }

  private static void widen(short[] raw, int[] values, int count) {
    for (int i = 0; i < count; i++) {
      values[i] = raw[i];
    }
  }

  private static void narrow(int[] values, byte[] raw, int count) {
    for (int i = 0; i < count; i++) {
      raw[i] = (byte) values[i];
    }
  }

  private static void narrow(int[] values, short[] raw, int count) {
    for (int i = 0; i < count; i++) {
      raw[i] = (short) values[i];
    }
  }

  private void store(
      int[] values,
      MemorySegment[] out,
      long[] outOffset,
      int m,
      long shift,
      int count,
      Scratch scratch) {
    switch (type.byteSize()) {
      case Byte.BYTES -> {
        byte[] raw = scratch.bytes();
        narrow(values, raw, turns(count));
        for (int o = 0; o < m; o++) {
          MemorySegment.copy(raw, 0, out[o], JAVA_BYTE, outOffset[o] + shift, count);
        }
      }
      case Short.BYTES -> {
        short[] raw = scratch.shorts();
        narrow(values, raw, turns(count));
        for (int o = 0; o < m; o++) {
          MemorySegment.copy(raw, 0, out[o], JAVA_SHORT_UNALIGNED, outOffset[o] + shift, count);
        }
      }
      default -> {
        for (int o = 0; o < m; o++) {
          MemorySegment.copy(values, 0, out[o], JAVA_INT_UNALIGNED, outOffset[o] + shift, count);
        }
      }
    }
  }
}
