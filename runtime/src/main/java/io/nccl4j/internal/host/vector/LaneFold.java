package io.nccl4j.internal.host.vector;

import static io.nccl4j.internal.host.vector.VectorFold.ADDRESS;
import static io.nccl4j.internal.host.vector.VectorFold.MEMORY;

import java.lang.invoke.MethodHandles;
import java.nio.ByteOrder;
import jdk.incubator.vector.Vector;
import jdk.incubator.vector.VectorOperators;
import jdk.incubator.vector.VectorSpecies;

/**
 * The loop for elements that are lanes as they are: float, double, byte, int, long. The accumulator
 * holds them like an input.
 *
 * <p>A template: {@link VectorKernels} defines it once more for every {@link Spec}, its class data.
 * In each copy what it folds is a constant, which vector code needs to be compiled to instructions,
 * and one copy's profile does not spoil another's.
 *
 * <p>The loop calls nothing but the Vector API, whose methods the compiler must inline. Whether it
 * inlines methods of our own depends on how often it has seen them called, thus on the sizes of the
 * first operations; a loop in which it has not makes an object of every vector, and is never
 * compiled again.
 */
final class LaneFold {
  private static final Spec SPEC = Spec.ofClass(MethodHandles.lookup());
  private static final VectorSpecies<Object> SPECIES = SPEC.species();
  private static final VectorOperators.Binary OPERATOR = SPEC.operator();
  private static final boolean SKIPS_NAN = SPEC.floating() && SPEC.extreme();
  private static final boolean FLIPS = SPEC.flips();
  private static final boolean AVERAGES = SPEC.finished() && SPEC.average();
  private static final boolean CANONICALISES = SPEC.finished() && SPEC.floating();
  private static final boolean TWICE = SPEC.twice();

  // The bits of floating lanes, as integral lanes; unused for integers. Not by views of vectors as
  // lanes of the other kind: JDK 27 makes objects of them.
  private static final VectorSpecies<Object> INTEGRAL = SPEC.integral();
  private static final Vector<Object> INFINITY = SPEC.bits(0x7f800000, 0x7ff0000000000000L);
  private static final Vector<Object> NAN = SPEC.bits(0x7fc00000, 0x7ff8000000000000L);
  private static final Vector<Object> MAGNITUDE = SPEC.bits(Integer.MAX_VALUE, Long.MAX_VALUE);
  private static final int SIGN_SHIFT = SPECIES.elementSize() - 1;
  private static final Vector<Object> UPPERMOST = SPEC.uppermostBits();

  private static final int WIDTH = SPECIES.vectorByteSize();
  private static final ByteOrder ORDER = ByteOrder.nativeOrder();

  private LaneFold() {}

  static void fold(long a, long b, long to0, long to1, int bytes, int n) {
    long fromA = a & ADDRESS;
    long fromB = b & ADDRESS;
    long out0 = to0 & ADDRESS;
    long out1 = to1 & ADDRESS;
    Vector<Object> factor = SPECIES.broadcast(1);
    if (AVERAGES) {
      factor = factor.lanewise(VectorOperators.DIV, SPECIES.broadcast(n));
    }
    for (int i = 0; i < bytes; i += WIDTH) {
      Vector<Object> x = SPECIES.fromMemorySegment(MEMORY, fromA + i, ORDER);
      Vector<Object> y = SPECIES.fromMemorySegment(MEMORY, fromB + i, ORDER);
      if (FLIPS) {
        x = x.lanewise(VectorOperators.XOR, UPPERMOST);
        y = y.lanewise(VectorOperators.XOR, UPPERMOST);
      }
      Vector<Object> result = x.lanewise(OPERATOR, y);
      if (FLIPS) {
        result = result.lanewise(VectorOperators.XOR, UPPERMOST);
      }
      if (SKIPS_NAN) {
        // The vector operation keeps NaN where one operand is NaN: the other one it shall be.
        result = result.blend(y, x.compare(VectorOperators.NE, x));
        result = result.blend(x, y.compare(VectorOperators.NE, y));
      }
      if (AVERAGES) {
        result = result.lanewise(VectorOperators.MUL, factor);
      }
      if (CANONICALISES) {
        // Without a mask, which not every shape has instructions for: all ones where it is NaN.
        Vector<Object> bits = result.reinterpretShape(INTEGRAL, 0);
        Vector<Object> magnitude = bits.lanewise(VectorOperators.AND, MAGNITUDE);
        Vector<Object> above = INFINITY.lanewise(VectorOperators.SUB, magnitude);
        Vector<Object> nan = above.lanewise(VectorOperators.ASHR, SIGN_SHIFT);
        bits = bits.lanewise(VectorOperators.BITWISE_BLEND, NAN, nan);
        result = bits.reinterpretShape(SPECIES, 0);
      }
      result.intoMemorySegment(MEMORY, out0 + i, ORDER);
      if (TWICE) {
        result.intoMemorySegment(MEMORY, out1 + i, ORDER);
      }
    }
  }
}
