package io.nccl4j.internal.host.kernel;

import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/**
 * A fold that needs nothing but the core library: it runs through heap arrays block by block, or
 * element by element when there are few. Every data type and reduction has one.
 */
public abstract class BlockFold implements FoldKernel {
  /** What loops over few elements run over is a multiple of this. */
  private static final int LEAST_TURNS = 64;

  /** From so many elements on there is a copy of the loops, which run over multiples of it. */
  private static final int MANY = 512;

  /** Up to here the copies into arrays cost more than they save. */
  private static final int FEW = 4;

  final DataType type;
  final ReduceOp.Kind kind;

  private BlockFold many = this;
  private int leastTurns = LEAST_TURNS;

  BlockFold(DataType type, ReduceOp.Kind kind) {
    this.type = type;
    this.kind = kind;
  }

  /** Has blocks of many elements folded by an object of a copy of this object's class. */
  final BlockFold withMany(BlockFold copy) {
    many = copy;
    copy.leastTurns = MANY;
    return this;
  }

  @Override
  public final void fold(
      MemorySegment[] in,
      long[] inOffset,
      int n,
      MemorySegment[] out,
      long[] outOffset,
      int m,
      long elements,
      long @Nullable [] scalars,
      Scratch scratch) {
    long @Nullable [] used = kind == ReduceOp.Kind.PRE_MUL_SUM ? scalars : null;
    if (elements <= FEW) {
      foldFew(in, inOffset, n, out, outOffset, m, 0, (int) elements, used);
      return;
    }
    int size = type.byteSize();
    for (long done = 0; done < elements; done += Scratch.BLOCK) {
      int count = (int) Math.min(Scratch.BLOCK, elements - done);
      BlockFold fold = count < MANY ? this : many;
      fold.foldBlock(in, inOffset, n, out, outOffset, m, done * size, count, used, scratch);
    }
  }

  /**
   * How many elements of the arrays the loops run over for {@code count} of them. The compiler
   * makes little of a loop that had few turns whenever it looked, and leaves it at that when there
   * are many: so none has few, and those for many elements never had less. What lies behind the
   * elements is worth nothing.
   */
  final int turns(int count) {
    return count + leastTurns - 1 & -leastTurns;
  }

  /** Folds {@code count} elements one by one, {@code shift} bytes behind the offsets. */
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
    for (int i = 0; i < count; i++) {
      foldElement(in, inOffset, n, out, outOffset, m, shift + (long) i * type.byteSize(), scalars);
    }
  }

  /** Folds the one element that lies {@code shift} bytes behind the offsets. */
  abstract void foldElement(
      MemorySegment[] in,
      long[] inOffset,
      int n,
      MemorySegment[] out,
      long[] outOffset,
      int m,
      long shift,
      long @Nullable [] scalars);

  /** Folds {@code count} elements, at most a block, {@code shift} bytes behind the offsets. */
  abstract void foldBlock(
      MemorySegment[] in,
      long[] inOffset,
      int n,
      MemorySegment[] out,
      long[] outOffset,
      int m,
      long shift,
      int count,
      long @Nullable [] scalars,
      Scratch scratch);
}
