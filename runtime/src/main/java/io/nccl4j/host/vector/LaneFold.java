package io.nccl4j.host.vector;

import io.nccl4j.host.kernel.BlockFold;
import java.lang.invoke.MethodHandles;
import java.nio.ByteOrder;
import jdk.incubator.vector.Vector;
import jdk.incubator.vector.VectorOperators;
import jdk.incubator.vector.VectorSpecies;

/**
 * Folds elements that are lanes as they are: float, double, byte, int, long.
 *
 * <p>A template: {@link VectorKernels} defines it once more for every lane type and operation, with
 * a {@link Spec} as class data. In each copy what it folds is a constant, which vector code needs
 * to be compiled to instructions, and one copy's profile does not spoil another's.
 */
final class LaneFold extends VectorFold {
  private static final Spec SPEC = Spec.ofClass(MethodHandles.lookup());
  private static final VectorSpecies<Object> SPECIES = SPEC.species();
  private static final VectorOperators.Binary OPERATOR = SPEC.operator();
  private static final boolean FLOATING = SPEC.floating();
  private static final boolean EXTREME = SPEC.extreme();
  private static final boolean AVERAGE = SPEC.average();

  // The bits of floating lanes, as integral lanes; unused for integers.
  private static final Vector<Object> INFINITY = SPEC.bits(0x7f800000, 0x7ff0000000000000L);
  private static final Vector<Object> NAN = SPEC.bits(0x7fc00000, 0x7ff8000000000000L);
  private static final Vector<Object> MAGNITUDE = SPEC.bits(Integer.MAX_VALUE, Long.MAX_VALUE);
  private static final int SIGN_SHIFT = SPECIES.elementSize() - 1;

  private static final int WIDTH = SPECIES.vectorByteSize();
  private static final ByteOrder ORDER = ByteOrder.nativeOrder();

  LaneFold(BlockFold generic) {
    super(generic, SPECIES.elementSize() / Byte.SIZE, WIDTH, 1, true, MethodHandles.lookup());
  }

  static void pair(long a, long b, long to0, long to1, int bytes, int n) {
    long fromA = a & ADDRESS;
    long fromB = b & ADDRESS;
    long out = to0 & ADDRESS;
    Vector<Object> factor = factor(n);
    int last = bytes - WIDTH;
    Vector<Object> end = finish(combine(load(fromA + last), load(fromB + last)), factor);
    for (int i = 0; i < last; i += WIDTH) {
      store(finish(combine(load(fromA + i), load(fromB + i)), factor), out + i);
    }
    store(end, out + last);
  }

  static void pairTwice(long a, long b, long to0, long to1, int bytes, int n) {
    long fromA = a & ADDRESS;
    long fromB = b & ADDRESS;
    long out0 = to0 & ADDRESS;
    long out1 = to1 & ADDRESS;
    Vector<Object> factor = factor(n);
    int last = bytes - WIDTH;
    Vector<Object> end = finish(combine(load(fromA + last), load(fromB + last)), factor);
    for (int i = 0; i < last; i += WIDTH) {
      Vector<Object> result = finish(combine(load(fromA + i), load(fromB + i)), factor);
      store(result, out0 + i);
      store(result, out1 + i);
    }
    store(end, out0 + last);
    store(end, out1 + last);
  }

  static void open(long a, long b, long to0, long to1, int bytes, int n) {
    long fromA = a & ADDRESS;
    long fromB = b & ADDRESS;
    long out = to0 & ADDRESS;
    int last = bytes - WIDTH;
    Vector<Object> end = combine(load(fromA + last), load(fromB + last));
    for (int i = 0; i < last; i += WIDTH) {
      store(combine(load(fromA + i), load(fromB + i)), out + i);
    }
    store(end, out + last);
  }

  static void step(long a, long b, long to0, long to1, int bytes, int n) {
    open(a, b, to0, to1, bytes, n);
  }

  static void close(long a, long b, long to0, long to1, int bytes, int n) {
    pair(a, b, to0, to1, bytes, n);
  }

  static void closeTwice(long a, long b, long to0, long to1, int bytes, int n) {
    pairTwice(a, b, to0, to1, bytes, n);
  }

  private static Vector<Object> load(long address) {
    return SPECIES.fromMemorySegment(MEMORY, address, ORDER);
  }

  private static void store(Vector<Object> vector, long address) {
    vector.intoMemorySegment(MEMORY, address, ORDER);
  }

  private static Vector<Object> combine(Vector<Object> a, Vector<Object> b) {
    Vector<Object> result = a.lanewise(OPERATOR, b);
    if (FLOATING && EXTREME) {
      // The vector operation keeps NaN where one operand is NaN: the other one it shall be.
      result = result.blend(b, a.compare(VectorOperators.NE, a));
      result = result.blend(a, b.compare(VectorOperators.NE, b));
    }
    return result;
  }

  private static Vector<Object> factor(int n) {
    return AVERAGE
        ? SPECIES.broadcast(1).lanewise(VectorOperators.DIV, SPECIES.broadcast(n))
        : SPECIES.zero();
  }

  private static Vector<Object> finish(Vector<Object> result, Vector<Object> factor) {
    Vector<Object> finished = AVERAGE ? result.lanewise(VectorOperators.MUL, factor) : result;
    if (!FLOATING) {
      return finished;
    }
    // Without a mask, which not every shape has instructions for: all ones where it is NaN.
    Vector<Object> bits = Spec.erased(finished.viewAsIntegralLanes());
    Vector<Object> nan =
        INFINITY
            .lanewise(VectorOperators.SUB, bits.lanewise(VectorOperators.AND, MAGNITUDE))
            .lanewise(VectorOperators.ASHR, SIGN_SHIFT);
    Vector<Object> canonical = bits.lanewise(VectorOperators.BITWISE_BLEND, NAN, nan);
    return Spec.erased(canonical.viewAsFloatingLanes());
  }
}
