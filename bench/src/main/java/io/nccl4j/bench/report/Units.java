package io.nccl4j.bench.report;

import java.util.Locale;

/** Numbers for people, and texts for HTML. */
final class Units {
  private Units() {}

  /** Three significant digits, without an exponent from 0.0001 to below 10 million. */
  static String number(double value) {
    double size = Math.abs(value);
    if (size != 0 && (size < 1e-4 || size >= 1e7)) {
      return String.format(Locale.ROOT, "%.2e", value);
    }
    int integral = size == 0 ? 3 : (int) Math.floor(Math.log10(size)) + 1;
    return String.format(Locale.ROOT, "%." + Math.max(0, 3 - integral) + "f", value);
  }

  /** The text, as a part of HTML or of an attribute's value. */
  static String escaped(String text) {
    return text.replace("&", "&amp;")
        .replace("<", "&lt;")
        .replace(">", "&gt;")
        .replace("\"", "&quot;");
  }
}
