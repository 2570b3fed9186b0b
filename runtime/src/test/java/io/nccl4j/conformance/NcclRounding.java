package io.nccl4j.conformance;

import io.nccl4j.DataType;

/**
 * How far NCCL's result of a floating-point reduction may be from ours: it rounds at every step,
 * fuses a product with a sum, takes the mean of scaled terms, or goes through a type of more range.
 * Every such way is within one unit in the last place of the largest intermediate result for each
 * step.
 *
 * @param fractionBits of the type
 * @param smallest the smallest normal number, below which numbers may be flushed to zero
 * @param largest the largest finite number
 */
record NcclRounding(int fractionBits, double smallest, double largest) {
  static NcclRounding of(DataType type) {
    return switch (type) {
      case FLOAT8_E4M3 -> new NcclRounding(3, 0x1p-6, 448);
      case FLOAT8_E5M2 -> new NcclRounding(2, 0x1p-14, 57344);
      case FLOAT16 -> new NcclRounding(10, 0x1p-14, 65504);
      case BFLOAT16 -> new NcclRounding(7, Float.MIN_NORMAL, 0x1.fep127);
      case FLOAT32 -> new NcclRounding(23, Float.MIN_NORMAL, Float.MAX_VALUE);
      case FLOAT64 -> new NcclRounding(52, Double.MIN_NORMAL, Double.MAX_VALUE);
      default -> throw new IllegalArgumentException(type + " is exact");
    };
  }

  boolean accepts(Case.Reduction reduction, double[] terms, double got, double want) {
    boolean product = reduction == Case.Reduction.PROD;
    if (got == want) {
      return true;
    }
    if (reduction == Case.Reduction.MIN || reduction == Case.Reduction.MAX) {
      return false;
    }
    double magnitude = product ? 1 : 0;
    for (double term : terms) {
      double size = Math.abs(term);
      magnitude = product ? magnitude * Math.max(1, size) : magnitude + size;
    }
    if (reduction == Case.Reduction.AVG) {
      // Scaled before they are added, so that sums stay in range where ours do not.
      double[] shares = new double[terms.length];
      double mean = 0;
      for (int i = 0; i < terms.length; i++) {
        shares[i] = terms[i] / terms.length;
        mean += shares[i];
      }
      if (want != mean && accepts(Case.Reduction.SUM, shares, got, mean)) {
        return true;
      }
    }
    double steps = terms.length + 2;
    double unit = Math.scalb(1.0, -fractionBits);
    // Where ours left the range of the type on the way, that of another order need not.
    double exact = product ? productOf(terms) : Double.isFinite(want) ? want : sumOf(terms);
    double relative = product ? Math.abs(exact) : magnitude;
    double flushed = smallest * (product ? magnitude : terms.length);
    if (Math.abs(got - exact) <= steps * unit * relative + flushed) {
      return true;
    }
    // Some order overflows, or an input is not finite. What comes of it depends on the order; of
    // 8-bit floats nothing is certain, as they saturate or become zero on the way.
    boolean overflows = !(magnitude * (1 + steps * unit) < largest);
    return overflows
        && (largest < 1e5 && fractionBits < 7
            || !Double.isFinite(got)
            || Math.abs(got) >= largest / terms.length / 2);
  }

  /** The product, though some of its factors alone may be too large or too small for a double. */
  private static double productOf(double[] terms) {
    double product = 1;
    int exponent = 0;
    for (double term : terms) {
      int shift = Math.getExponent(term);
      product *= Math.scalb(term, -shift);
      exponent += shift;
    }
    return Math.scalb(product, exponent);
  }

  /** The sum, though that of some terms may be too large for a double. */
  private static double sumOf(double[] terms) {
    double sum = 0;
    for (double term : terms) {
      sum += term / terms.length;
    }
    return sum * terms.length;
  }
}
