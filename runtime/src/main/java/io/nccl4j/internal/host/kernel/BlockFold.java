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
  /** Loops over few elements run a multiple of this many turns. */
  private static final int LEAST_TURNS = 64;

  /** Blocks of at least this many elements have their own copy of the loops. */
  private static final int MANY = 512;

  /** Up to here the copies into arrays cost more than they save. */
  public static final int FEW = 4;

  final DataType type;
  final ReduceOp.Kind kind;

  private int leastTurns = LEAST_TURNS;

  /** Folds blocks of many elements; null until there is one. */
  private volatile @Nullable BlockFold many;

  BlockFold(DataType type, ReduceOp.Kind kind) {
    this.type = type;
    this.kind = kind;
  }

  private BlockFold many() {
    BlockFold copy = many;
    if (copy == null) {
      // A race is harmless: any copy will do.
      copy = Templates.copy(this);
      copy.leastTurns = MANY;
      many = copy;
    }
    return copy;
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
      BlockFold fold = count < MANY ? this : many();
      fold.foldBlock(in, inOffset, n, out, outOffset, m, done * size, count, used, scratch);
    }
  }

  /**
   * How many turns the loops make for {@code count} elements, at least that many. The JIT compiler
   * barely optimises a loop that had few turns when it was compiled, and never compiles it again.
   * So no loop makes few turns, and the loops for many elements never make fewer than {@value
   * #MANY}. What the additional turns compute is not used.
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
