package io.nccl4j.host.vector;

import io.nccl4j.bindings.MemoryAccess;
import io.nccl4j.host.kernel.BlockFold;
import io.nccl4j.host.kernel.Copies;
import io.nccl4j.host.kernel.FoldKernel;
import io.nccl4j.host.kernel.Scratch;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.lang.ref.Reference;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * Cuts a fold into ranges that vector loops can do, in pieces whose length is an int. The last
 * vector of a range may overlap the one before: it is computed first, since the output may be an
 * input, and stored at the end. What is shorter than a vector, and a fold of a single input, goes
 * to the generic kernel.
 *
 * <p>Two inputs are folded in registers. More are gathered in the scratch's accumulator, a small
 * block at a time, so that what they add up to never leaves the nearest cache.
 *
 * <p>Segments are checked once per fold; the loops then work on addresses, as offsets into {@link
 * #MEMORY}. Checks in the loops would have to be hoisted out of them by the compiler, which it does
 * or does not depending on the sizes it has seen: a factor of two in speed. Memory that its owner
 * could close in the meantime is left to the generic kernel, which would notice.
 */
abstract class VectorFold implements FoldKernel {
  /** All memory. Never closed, so accesses to it check nothing but their bounds. */
  static final MemorySegment MEMORY = MemoryAccess.everything();

  private static final MemorySegment.Scope FOREVER = MEMORY.scope();

  /**
   * Changes no address of user memory, but tells the compiler that it is far from the bounds of
   * {@link #MEMORY}: applied outside a loop, it removes the bounds checks within.
   */
  static final long ADDRESS = Long.MAX_VALUE >> 1;

  /** Longer loops are cut, which keeps their counters ints and lets them compile early. */
  private static final int PIECE = 1 << 20;

  private static final MethodType LOOP =
      MethodType.methodType(
          void.class, long.class, long.class, long.class, long.class, int.class, int.class);

  private final BlockFold generic;
  private final int elementBytes;
  private final int vectorBytes;
  private final int blockBytes;

  /** Whether the loops take ranges that are no multiple of vectors. */
  private final boolean overlaps;

  // Not constants, so that the compiler cannot inline the loops here. It would whenever one kernel
  // is used more than others, and then run out of nodes and make an object of every vector.
  private final MethodHandle pair;
  private final MethodHandle pairTwice;
  private final MethodHandle open;
  private final MethodHandle step;
  private final MethodHandle close;
  private final MethodHandle closeTwice;

  /**
   * Creates a kernel.
   *
   * @param generic the kernel for what this one leaves over
   * @param elementBytes bytes of an element
   * @param vectorBytes bytes of the elements that are loaded at once
   * @param widening how many bytes of accumulator a byte of input needs
   * @param overlaps whether the loops take any {@code bytes} from a vector on, not only multiples
   * @param template looks up the loops: static methods with parameters {@code (long a, long b, long
   *     to0, long to1, int bytes, int n)}, addresses all but the last two. {@code pair} folds a and
   *     b into the output to0, {@code pairTwice} also into to1; {@code open} folds a and b into the
   *     accumulator to0; {@code step} folds b into the accumulator a; {@code close} and {@code
   *     closeTwice} fold the accumulator a and the last input b into outputs. n is the divisor of
   *     an average
   */
  VectorFold(
      BlockFold generic,
      int elementBytes,
      int vectorBytes,
      int widening,
      boolean overlaps,
      MethodHandles.Lookup template) {
    this.generic = generic;
    this.elementBytes = elementBytes;
    this.vectorBytes = vectorBytes;
    this.blockBytes = Scratch.ACCUMULATOR_BYTES / widening;
    this.overlaps = overlaps;
    pair = loop(template, "pair");
    pairTwice = loop(template, "pairTwice");
    open = loop(template, "open");
    step = loop(template, "step");
    close = loop(template, "close");
    closeTwice = loop(template, "closeTwice");
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
    long bytes = elements * elementBytes;
    long whole = 0;
    if (bytes >= vectorBytes && n > 1 && m > 0 && stay(in, n) && stay(out, m)) {
      whole = overlaps ? bytes : bytes & -vectorBytes;
    }
    if (whole > 0) {
      for (int o = 2; o < m; o++) {
        address(out[o], outOffset[o], whole);
      }
      if (n == 2) {
        foldPair(in, inOffset, out, outOffset, m, whole);
      } else {
        foldMany(in, inOffset, n, out, outOffset, m, whole, scratch);
      }
      Reference.reachabilityFence(in);
      Reference.reachabilityFence(out);
    }
    if (whole < bytes) {
      long rest = (bytes - whole) / elementBytes;
      generic.foldFrom(whole, in, inOffset, n, out, outOffset, m, rest, scalars, scratch);
    }
  }

  private void foldPair(
      MemorySegment[] in,
      long[] inOffset,
      MemorySegment[] out,
      long[] outOffset,
      int m,
      long bytes) {
    long a = address(in[0], inOffset[0], bytes);
    long b = address(in[1], inOffset[1], bytes);
    long to0 = address(out[0], outOffset[0], bytes);
    long to1 = m == 1 ? 0 : address(out[1], outOffset[1], bytes);
    int piece;
    for (long done = 0; done < bytes; done += piece) {
      piece = piece(bytes - done, PIECE);
      if (m == 1) {
        run(pair, a + done, b + done, to0 + done, 0, piece, 2);
      } else {
        run(pairTwice, a + done, b + done, to0 + done, to1 + done, piece, 2);
        spread(out, outOffset, m, done, piece);
      }
    }
  }

  private void foldMany(
      MemorySegment[] in,
      long[] inOffset,
      int n,
      MemorySegment[] out,
      long[] outOffset,
      int m,
      long bytes,
      Scratch scratch) {
    int last = n - 1;
    MemorySegment segment = scratch.accumulator();
    long accumulator = segment.address();
    long a = address(in[0], inOffset[0], bytes);
    long b = address(in[1], inOffset[1], bytes);
    long c = address(in[last], inOffset[last], bytes);
    long to0 = address(out[0], outOffset[0], bytes);
    long to1 = m == 1 ? 0 : address(out[1], outOffset[1], bytes);
    int block;
    for (long done = 0; done < bytes; done += block) {
      block = piece(bytes - done, blockBytes);
      run(open, a + done, b + done, accumulator, 0, block, n);
      for (int k = 2; k < last; k++) {
        long next = address(in[k], inOffset[k], bytes) + done;
        run(step, accumulator, next, accumulator, 0, block, n);
      }
      if (m == 1) {
        run(close, accumulator, c + done, to0 + done, 0, block, n);
      } else {
        run(closeTwice, accumulator, c + done, to0 + done, to1 + done, block, n);
        spread(out, outOffset, m, done, block);
      }
    }
    Reference.reachabilityFence(segment);
  }

  /** How much of what is left is done next: what then remains is nothing, or a vector at least. */
  private int piece(long left, int most) {
    return left <= most ? (int) left : (int) Math.min(most, left - vectorBytes);
  }

  /** Whether nobody can close these segments. */
  private static boolean stay(MemorySegment[] segments, int count) {
    for (int i = 0; i < count; i++) {
      if (segments[i].scope() != FOREVER) {
        return false;
      }
    }
    return true;
  }

  /** Copies a finished range from the first output to all after the second. */
  private static void spread(MemorySegment[] out, long[] outOffset, int m, long done, int bytes) {
    for (int o = 2; o < m; o++) {
      Copies.copy(out[0], outOffset[0] + done, out[o], outOffset[o] + done, bytes);
    }
  }

  /** The address of a range that must lie outside the heap. */
  private static long address(MemorySegment segment, long offset, long bytes) {
    Objects.checkFromIndexSize(offset, bytes, segment.byteSize());
    if (!segment.isNative()) {
      throw new IllegalArgumentException("on the heap: " + segment);
    }
    return segment.address() + offset;
  }

  private static void run(MethodHandle loop, long a, long b, long to0, long to1, int bytes, int n) {
    try {
      loop.invokeExact(a, b, to0, to1, bytes, n);
    } catch (RuntimeException | Error e) {
      throw e;
    } catch (Throwable e) {
      throw new IllegalStateException(e);
    }
  }

  private static MethodHandle loop(MethodHandles.Lookup template, String name) {
    try {
      return template.findStatic(template.lookupClass(), name, LOOP);
    } catch (ReflectiveOperationException e) {
      throw new LinkageError("no loop " + name, e);
    }
  }
}
