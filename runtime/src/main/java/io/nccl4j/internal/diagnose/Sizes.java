package io.nccl4j.internal.diagnose;

import java.util.Locale;

/** Numbers of bytes, for people. */
final class Sizes {
  private static final int SHIFT = 10;
  private static final double UNIT = 1 << SHIFT;

  private Sizes() {}

  /** For example {@code 36.8 MiB}. */
  static String text(long bytes) {
    String[] units = {"KiB", "MiB", "GiB", "TiB"};
    if (bytes < UNIT) {
      return bytes + " B";
    }
    double value = bytes;
    int unit = -1;
    while (value >= UNIT && unit < units.length - 1) {
      value /= UNIT;
      unit++;
    }
    return String.format(Locale.ROOT, "%.1f %s", value, units[unit]);
  }

  /** A size to ask for, twice as large as what is needed, in whole GiB. */
  static long gibibytes(long needBytes) {
    long gib = 1L << 3 * SHIFT;
    return Math.max(1, Math.ceilDiv(2 * needBytes, gib));
  }
}
