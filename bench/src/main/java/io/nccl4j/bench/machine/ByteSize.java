package io.nccl4j.bench.machine;

import io.nccl4j.InvalidArgumentException;
import java.math.BigDecimal;
import java.util.Locale;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Numbers of bytes: read as nccl-tests does, with an optional binary suffix K, M or G, and printed
 * with binary units.
 */
public final class ByteSize {
  /** Bytes of a mebibyte. */
  public static final long MIB = 1L << 20;

  /** Bytes of a gibibyte. */
  public static final long GIB = 1L << 30;

  private static final String[] UNITS = {"B", "KiB", "MiB", "GiB", "TiB"};
  private static final int LARGEST_SUFFIX = 3;
  private static final int STEP = 1024;
  private static final Pattern FORM =
      Pattern.compile("([0-9]{1,18}(?:\\.[0-9]{1,18})?)([KMG]?)(?:I?B)?");

  private static final long MOST = 1L << 62;

  private ByteSize() {}

  /**
   * The number of bytes that {@code text} says, for example {@code 8}, {@code 32M} or {@code 1.5G}.
   *
   * @throws InvalidArgumentException if it is not a size, not a whole number of bytes, or beyond
   *     2<sup>62</sup>
   */
  public static long parse(String text) {
    Matcher matcher = FORM.matcher(text.strip().toUpperCase(Locale.ROOT));
    if (!matcher.matches()) {
      throw bad(text);
    }
    long unit =
        switch (matcher.group(2)) {
          case "K" -> 1L << 10;
          case "M" -> MIB;
          case "G" -> GIB;
          default -> 1L;
        };
    String number = matcher.group(1);
    if (number.indexOf('.') < 0) {
      // The usual case, without a class that takes a start-up 20 ms.
      long count = Long.parseLong(number);
      if (count > MOST / unit) {
        throw bad(text);
      }
      return count * unit;
    }
    BigDecimal bytes = new BigDecimal(number).multiply(BigDecimal.valueOf(unit));
    if (bytes.stripTrailingZeros().scale() > 0 || bytes.compareTo(BigDecimal.valueOf(MOST)) > 0) {
      throw bad(text);
    }
    return bytes.longValueExact();
  }

  /** In the largest unit of which there is one: for example {@code 4 KiB} or {@code 1.50 MiB}. */
  public static String text(long bytes) {
    double value = bytes;
    int unit = 0;
    while (value >= STEP && unit < UNITS.length - 1) {
      value /= STEP;
      unit++;
    }
    String format = value == Math.rint(value) ? "%.0f %s" : "%.2f %s";
    return String.format(Locale.ROOT, format, value, UNITS[unit]);
  }

  /** As {@link #parse} reads it, in the largest unit of which it is a multiple: {@code 32M}. */
  public static String option(long bytes) {
    int unit = 0;
    while (bytes > 0 && bytes % STEP == 0 && unit < LARGEST_SUFFIX) {
      bytes /= STEP;
      unit++;
    }
    return unit == 0 ? String.valueOf(bytes) : bytes + UNITS[unit].substring(0, 1);
  }

  private static InvalidArgumentException bad(String text) {
    return new InvalidArgumentException(
        "'" + text + "' is not a size", "use a number of bytes, or one with K, M or G, like 32M");
  }
}
