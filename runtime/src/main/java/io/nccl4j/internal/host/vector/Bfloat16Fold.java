package io.nccl4j.internal.host.vector;

import static io.nccl4j.internal.host.vector.VectorFold.ADDRESS;
import static io.nccl4j.internal.host.vector.VectorFold.MEMORY;

import java.lang.invoke.MethodHandles;
import java.nio.ByteOrder;
import jdk.incubator.vector.FloatVector;
import jdk.incubator.vector.IntVector;
import jdk.incubator.vector.ShortVector;
import jdk.incubator.vector.VectorOperators;
import jdk.incubator.vector.VectorSpecies;

/**
 * The loop for bfloat16 elements. Two neighbours are loaded as one int: the upper half with the
 * lower one cleared, and the lower half shifted up, are their values as floats, so that nothing has
 * to be moved between lanes. The accumulator holds the lower halves of a vector, then the upper
 * ones.
 *
 * <p>A template that calls nothing but the Vector API, as {@link LaneFold} is.
 */
final class Bfloat16Fold {
  private static final Spec SPEC = Spec.ofClass(MethodHandles.lookup());
  private static final VectorOperators.Binary OPERATOR = SPEC.operator();
  private static final boolean EXTREME = SPEC.extreme();
  private static final boolean AVERAGES = SPEC.finished() && SPEC.average();
  private static final boolean GATHERED = SPEC.gathered();
  private static final boolean FINISHED = SPEC.finished();
  private static final boolean TWICE = SPEC.twice();
  private static final VectorSpecies<Integer> PAIRS = SPEC.pairs();
  private static final VectorSpecies<Float> FLOATS = SPEC.floats();
  private static final int WIDTH = PAIRS.vectorByteSize();

  // Vectors: a number costs the compiler more nodes, of which a loop must not have too many.
  private static final IntVector UPPER = IntVector.broadcast(PAIRS, 0xffff0000);
  private static final IntVector LOWER = IntVector.broadcast(PAIRS, 0xffff);
  private static final IntVector ONE = IntVector.broadcast(PAIRS, 1);
  private static final IntVector BELOW_HALF = IntVector.broadcast(PAIRS, 0x7fff);
  private static final ShortVector MAGNITUDE = UPPER.reinterpretAsShorts().broadcast(0x7fff);
  private static final ShortVector INFINITY = MAGNITUDE.broadcast(0x7f80);
  private static final ShortVector NAN = MAGNITUDE.broadcast(0x7fc0);

  private static final ByteOrder ORDER = ByteOrder.nativeOrder();

  private Bfloat16Fold() {}

  static void fold(long a, long b, long to0, long to1, int bytes, int n) {
    long fromA = a & ADDRESS;
    long fromB = b & ADDRESS;
    long out0 = to0 & ADDRESS;
    long out1 = to1 & ADDRESS;
    float factor = 1f / n;
    for (int i = 0; i < bytes; i += WIDTH) {
      FloatVector lowerA;
      FloatVector upperA;
      if (GATHERED) {
        lowerA = FloatVector.fromMemorySegment(FLOATS, MEMORY, fromA + 2 * i, ORDER);
        upperA = FloatVector.fromMemorySegment(FLOATS, MEMORY, fromA + 2 * i + WIDTH, ORDER);
      } else {
        IntVector pairs = IntVector.fromMemorySegment(PAIRS, MEMORY, fromA + i, ORDER);
        lowerA = pairs.lanewise(VectorOperators.LSHL, Short.SIZE).reinterpretAsFloats();
        upperA = pairs.and(UPPER).reinterpretAsFloats();
      }
      IntVector pairsB = IntVector.fromMemorySegment(PAIRS, MEMORY, fromB + i, ORDER);
      FloatVector lowerB = pairsB.lanewise(VectorOperators.LSHL, Short.SIZE).reinterpretAsFloats();
      FloatVector upperB = pairsB.and(UPPER).reinterpretAsFloats();
      FloatVector lower = lowerA.lanewise(OPERATOR, lowerB);
      FloatVector upper = upperA.lanewise(OPERATOR, upperB);
      if (EXTREME) {
        // The vector operation keeps NaN where one operand is NaN: the other one it shall be.
        lower = lower.blend(lowerB, lowerA.compare(VectorOperators.NE, lowerA));
        lower = lower.blend(lowerA, lowerB.compare(VectorOperators.NE, lowerB));
        upper = upper.blend(upperB, upperA.compare(VectorOperators.NE, upperA));
        upper = upper.blend(upperA, upperB.compare(VectorOperators.NE, upperB));
      }
      if (!FINISHED) {
        lower.intoMemorySegment(MEMORY, out0 + 2 * i, ORDER);
        upper.intoMemorySegment(MEMORY, out0 + 2 * i + WIDTH, ORDER);
        continue;
      }
      if (AVERAGES) {
        lower = lower.mul(factor);
        upper = upper.mul(factor);
      }
      // Rounds to the upper halves, to nearest even; the lower halves are left undefined. A NaN
      // stays one: only the upper half of it is set, as of all inputs, so that nothing is carried.
      IntVector low = lower.reinterpretAsInts();
      IntVector lowOdd = low.lanewise(VectorOperators.LSHR, Short.SIZE).and(ONE);
      low = low.add(lowOdd).add(BELOW_HALF).lanewise(VectorOperators.LSHR, Short.SIZE);
      IntVector high = upper.reinterpretAsInts();
      IntVector highOdd = high.lanewise(VectorOperators.LSHR, Short.SIZE).and(ONE);
      high = high.add(highOdd).add(BELOW_HALF);
      ShortVector codes =
          high.lanewise(VectorOperators.BITWISE_BLEND, low, LOWER).reinterpretAsShorts();
      // All ones where it is NaN; a mask is what not every shape has instructions for.
      ShortVector nan =
          INFINITY.sub(codes.and(MAGNITUDE)).lanewise(VectorOperators.ASHR, Short.SIZE - 1);
      IntVector result =
          codes.lanewise(VectorOperators.BITWISE_BLEND, NAN, nan).reinterpretAsInts();
      result.intoMemorySegment(MEMORY, out0 + i, ORDER);
      if (TWICE) {
        result.intoMemorySegment(MEMORY, out1 + i, ORDER);
      }
    }
  }
}
