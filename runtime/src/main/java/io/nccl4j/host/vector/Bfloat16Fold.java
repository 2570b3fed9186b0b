package io.nccl4j.host.vector;

import io.nccl4j.host.kernel.BlockFold;
import java.lang.invoke.MethodHandles;
import java.nio.ByteOrder;
import jdk.incubator.vector.FloatVector;
import jdk.incubator.vector.IntVector;
import jdk.incubator.vector.ShortVector;
import jdk.incubator.vector.VectorOperators;
import jdk.incubator.vector.VectorSpecies;

/**
 * Folds bfloat16 elements. Two neighbours are loaded as one int: the upper half with the lower one
 * cleared, and the lower half shifted up, are their values as floats, so that nothing has to be
 * moved between lanes. The accumulator holds the lower halves of a vector, then the upper ones: no
 * two vectors may overlap.
 *
 * <p>A template, as {@link LaneFold} is.
 */
final class Bfloat16Fold extends VectorFold {
  private static final Spec SPEC = Spec.ofClass(MethodHandles.lookup());
  private static final VectorOperators.Binary OPERATOR = SPEC.operator();
  private static final boolean EXTREME = SPEC.extreme();
  private static final boolean AVERAGE = SPEC.average();
  private static final VectorSpecies<Integer> PAIRS = IntVector.SPECIES_PREFERRED;
  private static final VectorSpecies<Float> FLOATS = FloatVector.SPECIES_PREFERRED;
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

  Bfloat16Fold(BlockFold generic) {
    super(generic, Short.BYTES, WIDTH, Float.BYTES / Short.BYTES, false, MethodHandles.lookup());
  }

  static void pair(long a, long b, long to0, long to1, int bytes, int n) {
    long fromA = a & ADDRESS;
    long fromB = b & ADDRESS;
    long out = to0 & ADDRESS;
    for (int i = 0; i < bytes; i += WIDTH) {
      IntVector pairsA = load(fromA + i);
      IntVector pairsB = load(fromB + i);
      FloatVector lower = combine(lower(pairsA), lower(pairsB));
      FloatVector upper = combine(upper(pairsA), upper(pairsB));
      store(round(lower, upper, n), out + i);
    }
  }

  static void pairTwice(long a, long b, long to0, long to1, int bytes, int n) {
    long fromA = a & ADDRESS;
    long fromB = b & ADDRESS;
    long out0 = to0 & ADDRESS;
    long out1 = to1 & ADDRESS;
    for (int i = 0; i < bytes; i += WIDTH) {
      IntVector pairsA = load(fromA + i);
      IntVector pairsB = load(fromB + i);
      FloatVector lower = combine(lower(pairsA), lower(pairsB));
      FloatVector upper = combine(upper(pairsA), upper(pairsB));
      IntVector result = round(lower, upper, n);
      store(result, out0 + i);
      store(result, out1 + i);
    }
  }

  static void open(long a, long b, long to0, long to1, int bytes, int n) {
    long fromA = a & ADDRESS;
    long fromB = b & ADDRESS;
    long gathered = to0 & ADDRESS;
    for (int i = 0; i < bytes; i += WIDTH) {
      IntVector pairsA = load(fromA + i);
      IntVector pairsB = load(fromB + i);
      gather(combine(lower(pairsA), lower(pairsB)), gathered + 2 * i);
      gather(combine(upper(pairsA), upper(pairsB)), gathered + 2 * i + WIDTH);
    }
  }

  static void step(long a, long b, long to0, long to1, int bytes, int n) {
    long gathered = a & ADDRESS;
    long fromB = b & ADDRESS;
    for (int i = 0; i < bytes; i += WIDTH) {
      IntVector pairsB = load(fromB + i);
      FloatVector lower = combine(gathered(gathered + 2 * i), lower(pairsB));
      FloatVector upper = combine(gathered(gathered + 2 * i + WIDTH), upper(pairsB));
      gather(lower, gathered + 2 * i);
      gather(upper, gathered + 2 * i + WIDTH);
    }
  }

  static void close(long a, long b, long to0, long to1, int bytes, int n) {
    long gathered = a & ADDRESS;
    long fromB = b & ADDRESS;
    long out = to0 & ADDRESS;
    for (int i = 0; i < bytes; i += WIDTH) {
      IntVector pairsB = load(fromB + i);
      FloatVector lower = combine(gathered(gathered + 2 * i), lower(pairsB));
      FloatVector upper = combine(gathered(gathered + 2 * i + WIDTH), upper(pairsB));
      store(round(lower, upper, n), out + i);
    }
  }

  static void closeTwice(long a, long b, long to0, long to1, int bytes, int n) {
    long gathered = a & ADDRESS;
    long fromB = b & ADDRESS;
    long out0 = to0 & ADDRESS;
    long out1 = to1 & ADDRESS;
    for (int i = 0; i < bytes; i += WIDTH) {
      IntVector pairsB = load(fromB + i);
      FloatVector lower = combine(gathered(gathered + 2 * i), lower(pairsB));
      FloatVector upper = combine(gathered(gathered + 2 * i + WIDTH), upper(pairsB));
      IntVector result = round(lower, upper, n);
      store(result, out0 + i);
      store(result, out1 + i);
    }
  }

  private static IntVector load(long address) {
    return IntVector.fromMemorySegment(PAIRS, MEMORY, address, ORDER);
  }

  private static void store(IntVector pairs, long address) {
    pairs.intoMemorySegment(MEMORY, address, ORDER);
  }

  private static FloatVector gathered(long address) {
    return FloatVector.fromMemorySegment(FLOATS, MEMORY, address, ORDER);
  }

  private static void gather(FloatVector values, long address) {
    values.intoMemorySegment(MEMORY, address, ORDER);
  }

  private static FloatVector lower(IntVector pairs) {
    return pairs.lanewise(VectorOperators.LSHL, Short.SIZE).reinterpretAsFloats();
  }

  private static FloatVector upper(IntVector pairs) {
    return pairs.and(UPPER).reinterpretAsFloats();
  }

  private static FloatVector combine(FloatVector a, FloatVector b) {
    FloatVector result = a.lanewise(OPERATOR, b);
    if (EXTREME) {
      // The vector operation keeps NaN where one operand is NaN: the other one it shall be.
      result = result.blend(b, a.compare(VectorOperators.NE, a));
      result = result.blend(a, b.compare(VectorOperators.NE, b));
    }
    return result;
  }

  private static IntVector round(FloatVector lower, FloatVector upper, int n) {
    IntVector low = round(lower, n).lanewise(VectorOperators.LSHR, Short.SIZE);
    IntVector pairs = round(upper, n).lanewise(VectorOperators.BITWISE_BLEND, low, LOWER);
    // All ones where it is NaN; a mask is what not every shape has instructions for.
    ShortVector codes = pairs.reinterpretAsShorts();
    ShortVector nan =
        INFINITY.sub(codes.and(MAGNITUDE)).lanewise(VectorOperators.ASHR, Short.SIZE - 1);
    return codes.lanewise(VectorOperators.BITWISE_BLEND, NAN, nan).reinterpretAsInts();
  }

  /**
   * Rounds to the upper halves, to nearest even; the lower halves are left undefined. A NaN stays
   * one: only the upper half of it is set, as of all the inputs, so that nothing is carried.
   */
  private static IntVector round(FloatVector values, int n) {
    IntVector bits = (AVERAGE ? values.mul(1f / n) : values).reinterpretAsInts();
    IntVector odd = bits.lanewise(VectorOperators.LSHR, Short.SIZE).and(ONE);
    return bits.add(odd).add(BELOW_HALF);
  }
}
