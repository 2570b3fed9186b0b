package io.nccl4j.bench.report;

import java.util.Locale;

/** Numbers for people, and texts for HTML. */
final class Units {
  private static final String[] BYTES = {"B", "KiB", "MiB", "GiB", "TiB"};
  private static final int STEP = 1024;

  private Units() {}

  /** For example {@code 4 KiB}. */
  static String bytes(long size) {
    double value = size;
    int unit = 0;
    while (value >= STEP && unit < BYTES.length - 1) {
      value /= STEP;
      unit++;
    }
    String format = value == Math.rint(value) ? "%.0f %s" : "%.2f %s";
    return String.format(Locale.ROOT, format, value, BYTES[unit]);
  }

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
