package io.nccl4j.internal.host.kernel;

import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/**
 * Folds n inputs into one result, element by element, and writes it to m outputs.
 *
 * <p><b>Arithmetic.</b> {@code out[o][i] = round(in[0][i] op in[1][i] op … op in[n-1][i])}, folded
 * in exactly this order in one type of accumulation and rounded once. The bits of the result depend
 * on nothing else: not on m, on alignment, on how a range is split into calls, or on which
 * implementation runs. Accumulation is in binary32 for floats of up to 32 bits, in binary64 for
 * {@code FLOAT64}; integers wrap around.
 *
 * <ul>
 *   <li>Any NaN result is <em>the</em> positive quiet NaN of the type ({@code 0x7fc00000}, {@code
 *       0x7ff8000000000000}, half {@code 0x7e00}, bfloat16 {@code 0x7fc0}, both 8-bit floats {@code
 *       0x7f}), also when n is 1: which payload or sign a processor would keep depends on its
 *       instructions, and results must not.
 *   <li>MIN and MAX ignore NaN unless every element is NaN; −0 is smaller than +0.
 *   <li>AVG of floats multiplies the sum by 1/n, both in the type of accumulation. AVG of integers
 *       wraps the sum to the element type, then divides by n, truncating towards zero.
 *   <li>8-bit floats saturate: what is beyond the largest finite value, infinities included,
 *       becomes that value.
 * </ul>
 */
@FunctionalInterface
public interface FoldKernel {
  /**
   * Folds {@code elements} elements.
   *
   * <p>An output may be exactly the same memory as an input at the same position (in place); it
   * must not overlap one partially, nor another output. Offsets are in bytes and multiples of the
   * element size; the memory itself may be unaligned. Nothing is allocated once {@code scratch} has
   * served a call of this kernel and the JIT compiler has compiled it.
   *
   * <p>All segments lie outside the heap, and whoever calls this keeps them open until it returns:
   * bounds and liveness are checked at the start, and vector loops rely on them from then on.
   *
   * @param in the inputs, in the order in which they are folded
   * @param inOffset where each input starts in its segment
   * @param n how many inputs there are, at least 1; also the divisor of AVG
   * @param out the outputs
   * @param outOffset where each output starts in its segment
   * @param m how many outputs there are
   * @param elements how many elements to fold
   * @param scalars for PRE_MUL_SUM, one scalar per input ({@link Double#doubleToRawLongBits} for
   *     floating types, the integer itself for integer types); null means no scaling, and other
   *     reductions ignore it. Each is converted to the type of accumulation before it is used
   * @param scratch the calling thread's
   */
  void fold(
      MemorySegment[] in,
      long[] inOffset,
      int n,
      MemorySegment[] out,
      long[] outOffset,
      int m,
      long elements,
      long @Nullable [] scalars,
      Scratch scratch);
}
