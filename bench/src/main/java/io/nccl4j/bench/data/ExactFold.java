package io.nccl4j.bench.data;

import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;

/** The reduction of one element of all ranks, in rank order, for the inputs of {@link TestData}. */
final class ExactFold {
  private ExactFold() {}

  /** Integers: wrapped to the type's width at each step. */
  static long integers(DataType type, ReduceOp.Kind op, long[] inputs) {
    long result = scaled(type, op, inputs, 0);
    for (int rank = 1; rank < inputs.length; rank++) {
      long next = scaled(type, op, inputs, rank);
      long folded =
          switch (op) {
            case SUM, AVG, PRE_MUL_SUM -> result + next;
            case PROD -> result * next;
            case MAX -> compare(type, result, next) >= 0 ? result : next;
            case MIN -> compare(type, result, next) <= 0 ? result : next;
          };
      result = Elements.extend(type, folded);
    }
    if (op == ReduceOp.Kind.AVG) {
      result =
          type.isUnsignedInteger()
              ? Long.divideUnsigned(result, inputs.length)
              : result / inputs.length;
    }
    return result & Elements.mask(type);
  }

  /** Floats: exact in double for every type, but for the one rounding of an average. */
  static long floats(DataType type, ReduceOp.Kind op, long[] inputs) {
    double result = scaledFloat(type, op, inputs, 0);
    for (int rank = 1; rank < inputs.length; rank++) {
      double next = scaledFloat(type, op, inputs, rank);
      result =
          switch (op) {
            case SUM, AVG, PRE_MUL_SUM -> result + next;
            case PROD -> result * next;
            case MAX -> Math.max(result, next);
            case MIN -> Math.min(result, next);
          };
    }
    if (op == ReduceOp.Kind.AVG) {
      result =
          type == DataType.FLOAT64
              ? result * (1.0 / inputs.length)
              : (float) result * (1.0f / inputs.length);
    }
    return Elements.encode(type, result);
  }

  private static int compare(DataType type, long a, long b) {
    return type.isUnsignedInteger() ? Long.compareUnsigned(a, b) : Long.compare(a, b);
  }

  private static long scaled(DataType type, ReduceOp.Kind op, long[] inputs, int rank) {
    long value = Elements.extend(type, inputs[rank]);
    return op == ReduceOp.Kind.PRE_MUL_SUM
        ? Elements.extend(type, value * TestData.scalar(rank))
        : value;
  }

  private static double scaledFloat(DataType type, ReduceOp.Kind op, long[] inputs, int rank) {
    double value = Elements.decode(type, inputs[rank]);
    return op == ReduceOp.Kind.PRE_MUL_SUM ? value * TestData.scalar(rank) : value;
  }
}
