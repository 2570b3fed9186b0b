package io.nccl4j.internal.machine;

import java.util.Locale;

/** Numbers of bytes, for people. */
public final class ByteSizes {
  private static final String[] UNITS = {"KiB", "MiB", "GiB", "TiB"};
  private static final double STEP = 1024;

  private ByteSizes() {}

  /** For example {@code 36.8 MiB}. */
  public static String text(long bytes) {
    if (bytes < STEP) {
      return bytes + " B";
    }
    double value = bytes;
    int unit = -1;
    while (value >= STEP && unit < UNITS.length - 1) {
      value /= STEP;
      unit++;
    }
    return String.format(Locale.ROOT, "%.1f %s", value, UNITS[unit]);
  }
}
