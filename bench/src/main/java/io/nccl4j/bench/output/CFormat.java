package io.nccl4j.bench.output;

import java.math.BigDecimal;
import java.math.MathContext;
import java.math.RoundingMode;
import java.util.Locale;

/** Numbers as C prints them, where Java's formats differ. */
final class CFormat {
  private static final int SIGNIFICANT = 6;

  private CFormat() {}

  /** C's {@code %g}: six significant digits, no zeros at the end, an exponent where it is short. */
  static String general(double value) {
    if (value == 0 || Double.isNaN(value) || Double.isInfinite(value)) {
      return value == 0 ? "0" : Double.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf";
    }
    BigDecimal rounded =
        new BigDecimal(value).round(new MathContext(SIGNIFICANT, RoundingMode.HALF_EVEN));
    int exponent = rounded.precision() - rounded.scale() - 1;
    BigDecimal digits = rounded.stripTrailingZeros();
    if (exponent >= -4 && exponent < SIGNIFICANT) {
      return digits.toPlainString();
    }
    String mantissa = digits.movePointLeft(exponent).toPlainString();
    return String.format(
        Locale.ROOT, "%se%s%02d", mantissa, exponent < 0 ? "-" : "+", Math.abs(exponent));
  }

  /** As many decimals, at most two, as fit a column; an exponent if even none do. */
  static String fitted(double value, int width) {
    for (int decimals = 2; decimals >= 0; decimals--) {
      String text = String.format(Locale.ROOT, "%" + width + "." + decimals + "f", value);
      if (text.length() <= width) {
        return text;
      }
    }
    String format = "%" + width + (width >= 7 ? ".1e" : ".0e");
    return String.format(Locale.ROOT, format, value);
  }
}
