package io.nccl4j.internal.host.vector;

import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import io.nccl4j.bindings.MemoryAccess;
import io.nccl4j.internal.host.kernel.BlockFold;
import io.nccl4j.internal.host.kernel.Copies;
import io.nccl4j.internal.host.kernel.FoldKernel;
import io.nccl4j.internal.host.kernel.Scratch;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.lang.ref.Reference;
import java.util.Objects;
import jdk.incubator.vector.VectorSpecies;
import org.jspecify.annotations.Nullable;

/**
 * Cuts a fold into ranges that vector loops can do: whole vectors, in pieces whose length is an
 * int. Where the end is none, the last vector overlaps the one before: it is computed first, into
 * the scratch, since the output may be an input, and copied at the end. What is shorter than a
 * vector is folded in narrow ones; what is shorter than these, a few elements of many inputs, and a
 * fold of a single input go to the generic kernel.
 *
 * <p>Two inputs are folded in registers. More are gathered in the scratch's accumulator, a small
 * block at a time, so that what they add up to never leaves the nearest cache.
 *
 * <p>Segments are checked once per fold; the loops then work on addresses, as offsets into {@link
 * #MEMORY}. Checks in the loops would have to be hoisted out of them by the compiler, which it does
 * or does not depending on the sizes it has seen: a factor of two in speed. Memory that its owner
 * could close in the meantime is copied to the scratch and from there, a block at a time: a copy
 * would notice.
 *
 * <p>Short and long ranges have loops of their own: how often a loop turned for the ranges that the
 * compiler has seen decides how far it unrolls it, and that for good.
 */
final class VectorFold implements FoldKernel {
  /** All memory. Never closed, so accesses to it check nothing but their bounds. */
  static final MemorySegment MEMORY = MemoryAccess.everything();

  /** The scopes of memory that is garbage collected and cannot be closed. */
  private static final @Nullable Class<?> COLLECTED = collected();

  /**
   * Changes no address of user memory, but tells the compiler that it is far from the bounds of
   * {@link #MEMORY}: applied outside a loop, it removes the bounds checks within.
   */
  static final long ADDRESS = Long.MAX_VALUE >> 1;

  /** Longer loops are cut, which keeps their counters ints and lets them compile early. */
  private static final int PIECE = 1 << 20;

  /** Ranges from this size on have loops of their own. */
  private static final int LARGE = 2048;

  // What a loop is for, as an index of loops.
  private static final int GATHERED = 1;
  private static final int FINISHED = 2;
  private static final int TWICE = 4;
  private static final int LONG = 8;
  private static final int NARROW = 16;

  private final VectorKernels kernels;
  private final VectorSpecies<?> lanes;
  private final VectorSpecies<?> narrow;
  private final ReduceOp.Kind kind;
  private final BlockFold generic;
  private final int elementBytes;
  private final int vectorBytes;
  private final int narrowBytes;
  private final int blockBytes;
  private final boolean flips;

  /** Whether the accumulator holds elements otherwise than an input does. */
  private final boolean widens;

  // Not constants, so that the compiler cannot inline the loops here. It would whenever one kernel
  // is used more than others, and then run out of nodes and make an object of every vector.
  private final @Nullable MethodHandle[] loops = new MethodHandle[2 * NARROW];

  /**
   * Creates a kernel.
   *
   * @param kernels makes the loops
   * @param lanes the vectors it folds in
   * @param narrow what it folds in narrow vectors; the same as {@code lanes} if it has none
   * @param generic the kernel for what this one leaves over
   */
  VectorFold(
      VectorKernels kernels,
      DataType type,
      VectorSpecies<?> lanes,
      VectorSpecies<?> narrow,
      ReduceOp.Kind kind,
      BlockFold generic) {
    this.kernels = kernels;
    this.lanes = lanes;
    this.narrow = narrow;
    this.kind = kind;
    this.generic = generic;
    elementBytes = type.byteSize();
    vectorBytes = lanes.vectorByteSize();
    narrowBytes = narrow.vectorByteSize();
    boolean extreme = kind == ReduceOp.Kind.MIN || kind == ReduceOp.Kind.MAX;
    flips = extreme && type.isUnsignedInteger();
    widens = type == DataType.BFLOAT16;
    blockBytes = widens ? Scratch.ACCUMULATOR_BYTES / 2 : Scratch.ACCUMULATOR_BYTES;
  }

  @Override
  public void fold(
      MemorySegment[] in,
      long[] inOffset,
      int n,
      MemorySegment[] out,
      long[] outOffset,
      int m,
      long elements,
      long @Nullable [] scalars,
      Scratch scratch) {
    long bytes = elements * elementBytes;
    int width = bytes < vectorBytes ? narrowBytes : vectorBytes;
    boolean areFew = bytes < vectorBytes && n > 2 && elements <= BlockFold.FEW;
    if (bytes < width || areFew || n == 1 || m == 0) {
      generic.fold(in, inOffset, n, out, outOffset, m, elements, scalars, scratch);
      return;
    }
    if (!stay(in, n) || !stay(out, m)) {
      foldCopies(in, inOffset, n, out, outOffset, m, bytes, scratch);
      return;
    }
    check(in, inOffset, n, bytes);
    check(out, outOffset, m, bytes);
    if (n == 2 && m == 1 && bytes <= PIECE && (bytes & width - 1) == 0) {
      foldBlock(in, inOffset, n, 0, (int) bytes, 0, out[0].address() + outOffset[0], 0);
    } else {
      foldBlocks(in, inOffset, n, out, outOffset, m, bytes, width, scratch);
    }
    Reference.reachabilityFence(in);
    Reference.reachabilityFence(out);
  }

  /** Folds in vectors of {@code width} bytes, of which there is at least one. */
  private void foldBlocks(
      MemorySegment[] in,
      long[] inOffset,
      int n,
      MemorySegment[] out,
      long[] outOffset,
      int m,
      long bytes,
      int width,
      Scratch scratch) {
    MemorySegment held = scratch.accumulator();
    long accumulator = held.address();
    long to0 = out[0].address() + outOffset[0];
    long to1 = m == 1 ? 0 : out[1].address() + outOffset[1];
    long whole = bytes & -width;
    if (whole < bytes) {
      long last = accumulator + Scratch.ACCUMULATOR_BYTES;
      foldBlock(in, inOffset, n, bytes - width, width, accumulator, last, 0);
    }
    int most = n == 2 ? PIECE : blockBytes;
    int block;
    for (long done = 0; done < whole; done += block) {
      block = (int) Math.min(most, whole - done);
      long second = m == 1 ? 0 : to1 + done;
      foldBlock(in, inOffset, n, done, block, accumulator, to0 + done, second);
      for (int o = 2; o < m; o++) {
        Copies.copy(out[0], outOffset[0] + done, out[o], outOffset[o] + done, block);
      }
    }
    for (int o = 0; o < m && whole < bytes; o++) {
      long from = Scratch.ACCUMULATOR_BYTES + width - (bytes - whole);
      Copies.copy(held, from, out[o], outOffset[o] + whole, bytes - whole);
    }
    Reference.reachabilityFence(held);
  }

  /**
   * Folds by way of the scratch. The last vector may go beyond the end: what it holds there is not
   * copied back.
   */
  private void foldCopies(
      MemorySegment[] in,
      long[] inOffset,
      int n,
      MemorySegment[] out,
      long[] outOffset,
      int m,
      long bytes,
      Scratch scratch) {
    MemorySegment held = scratch.accumulator();
    MemorySegment first = scratch.firstOperand();
    MemorySegment second = scratch.secondOperand();
    long accumulator = held.address();
    long a = first.address();
    long b = second.address();
    int block;
    for (long done = 0; done < bytes; done += block) {
      block = (int) Math.min(blockBytes, bytes - done);
      int whole = block + vectorBytes - 1 & -vectorBytes;
      Copies.copy(in[0], inOffset[0] + done, first, 0, block);
      Copies.copy(in[1], inOffset[1] + done, second, 0, block);
      run(n == 2 ? FINISHED : 0, a, b, n == 2 ? a : accumulator, 0, whole, n);
      for (int k = 2; k < n; k++) {
        Copies.copy(in[k], inOffset[k] + done, second, 0, block);
        boolean last = k == n - 1;
        int use = last ? GATHERED | FINISHED : GATHERED;
        run(use, accumulator, b, last ? a : accumulator, 0, whole, n);
      }
      for (int o = 0; o < m; o++) {
        Copies.copy(first, 0, out[o], outOffset[o] + done, block);
      }
    }
    Reference.reachabilityFence(held);
    Reference.reachabilityFence(first);
    Reference.reachabilityFence(second);
  }

  /** Whether nobody can close these segments. */
  private static boolean stay(MemorySegment[] segments, int count) {
    for (int i = 0; i < count; i++) {
      MemorySegment segment = segments[i];
      if (!Copies.staysOpen(segment) && segment.scope().getClass() != COLLECTED) {
        return false;
      }
    }
    return true;
  }

  /** What tells an automatic arena's scope; null where nothing tells it from a shared one's. */
  private static @Nullable Class<?> collected() {
    Class<?> automatic = Arena.ofAuto().scope().getClass();
    try (Arena shared = Arena.ofShared();
        Arena confined = Arena.ofConfined()) {
      boolean told =
          automatic != shared.scope().getClass() && automatic != confined.scope().getClass();
      return told ? automatic : null;
    }
  }

  /** Makes sure that ranges lie within their segments, and these outside the heap. */
  private static void check(MemorySegment[] segments, long[] offsets, int count, long bytes) {
    for (int i = 0; i < count; i++) {
      Objects.checkFromIndexSize(offsets[i], bytes, segments[i].byteSize());
      if (!segments[i].isNative()) {
        throw new IllegalArgumentException("on the heap: " + segments[i]);
      }
    }
  }

  /**
   * Folds whole vectors, {@code shift} bytes behind the offsets, to one address, or to two if
   * {@code to1} is not 0.
   */
  private void foldBlock(
      MemorySegment[] in,
      long[] inOffset,
      int n,
      long shift,
      int bytes,
      long accumulator,
      long to0,
      long to1) {
    long a = in[0].address() + inOffset[0] + shift;
    long b = in[1].address() + inOffset[1] + shift;
    int end = to1 == 0 ? FINISHED : FINISHED | TWICE;
    if (n == 2) {
      run(end, a, b, to0, to1, bytes, n);
      return;
    }
    run(0, a, b, accumulator, 0, bytes, n);
    int last = n - 1;
    for (int k = 2; k < last; k++) {
      long next = in[k].address() + inOffset[k] + shift;
      run(GATHERED, accumulator, next, accumulator, 0, bytes, n);
    }
    long c = in[last].address() + inOffset[last] + shift;
    run(GATHERED | end, accumulator, c, to0, to1, bytes, n);
  }

  private void run(int use, long a, long b, long to0, long to1, int bytes, int n) {
    int index = bytes < vectorBytes ? use | NARROW : bytes < LARGE ? use : use | LONG;
    MethodHandle loop = loops[index];
    try {
      // A race is harmless: handles have final fields only, and all threads are given the same.
      (loop != null ? loop : (loops[index] = loop(index))).invokeExact(a, b, to0, to1, bytes, n);
    } catch (RuntimeException | Error e) {
      throw e;
    } catch (Throwable e) {
      throw new IllegalStateException(e);
    }
  }

  private MethodHandle loop(int index) {
    return kernels.loop(
        new Spec(
            (index & NARROW) == 0 ? lanes : narrow,
            kind,
            flips,
            widens && (index & GATHERED) != 0,
            (index & FINISHED) != 0,
            (index & TWICE) != 0,
            (index & LONG) != 0));
  }
}
