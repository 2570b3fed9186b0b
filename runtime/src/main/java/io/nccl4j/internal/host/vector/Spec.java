package io.nccl4j.internal.host.vector;

import io.nccl4j.ReduceOp;
import java.lang.invoke.MethodHandles;
import jdk.incubator.vector.Vector;
import jdk.incubator.vector.VectorOperators;
import jdk.incubator.vector.VectorSpecies;

/**
 * What one copy of a template folds: the class data of {@link LaneFold} and {@link Bfloat16Fold}.
 *
 * @param lanes the vectors it folds in
 * @param kind the reduction
 * @param flips whether it compares integers without sign, as others with the uppermost bit flipped
 * @param gathered whether its first operand is the accumulator
 * @param finished whether it writes outputs, not the accumulator
 * @param twice whether it writes two outputs
 * @param large whether it is for long ranges; for nothing but a profile of its own
 */
record Spec(
    VectorSpecies<?> lanes,
    ReduceOp.Kind kind,
    boolean flips,
    boolean gathered,
    boolean finished,
    boolean twice,
    boolean large) {
  /** The class data of the template copy that looks it up. */
  static Spec ofClass(MethodHandles.Lookup lookup) {
    try {
      return MethodHandles.classData(lookup, "_", Spec.class);
    } catch (IllegalAccessException e) {
      throw new LinkageError("no class data", e);
    }
  }

  /** The lanes with their type forgotten: a template is compiled for any of them. */
  @SuppressWarnings("unchecked")
  VectorSpecies<Object> species() {
    return (VectorSpecies<Object>) lanes;
  }

  /** Vectors as wide as the lanes, of ints: two neighbouring elements of 16 bits each. */
  @SuppressWarnings("unchecked")
  VectorSpecies<Integer> pairs() {
    return (VectorSpecies<Integer>) lanes.withLanes(int.class);
  }

  /** The same as floats. */
  @SuppressWarnings("unchecked")
  VectorSpecies<Float> floats() {
    return (VectorSpecies<Float>) lanes.withLanes(float.class);
  }

  VectorOperators.Binary operator() {
    return switch (kind) {
      case SUM, AVG, PRE_MUL_SUM -> VectorOperators.ADD;
      case PROD -> VectorOperators.MUL;
      case MIN -> VectorOperators.MIN;
      case MAX -> VectorOperators.MAX;
    };
  }

  boolean floating() {
    return lanes.elementType() == float.class || lanes.elementType() == double.class;
  }

  boolean extreme() {
    return kind == ReduceOp.Kind.MIN || kind == ReduceOp.Kind.MAX;
  }

  boolean average() {
    return kind == ReduceOp.Kind.AVG;
  }

  /** A vector of the uppermost bit of integers; zeros for floats and doubles. */
  Vector<Object> uppermostBits() {
    return species().broadcast(floating() ? 0 : -1L << lanes.elementSize() - 1);
  }

  /**
   * A vector of the given bits, in integral lanes as wide as the floats or doubles of this spec.
   * Zeros for integers, which have no use for it.
   */
  Vector<Object> bits(int ofFloat, long ofDouble) {
    long bits = lanes.elementType() == float.class ? ofFloat : ofDouble;
    return integral().broadcast(floating() ? bits : 0);
  }

  /** The lanes as integers of the same size. */
  @SuppressWarnings("unchecked")
  VectorSpecies<Object> integral() {
    Class<?> type = lanes.elementType();
    return (VectorSpecies<Object>)
        (type == float.class
            ? lanes.withLanes(int.class)
            : type == double.class ? lanes.withLanes(long.class) : lanes);
  }
}
