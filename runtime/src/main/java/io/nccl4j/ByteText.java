package io.nccl4j;

import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Numbers of bytes in the environment, optionally with a binary suffix K, M or G. */
final class ByteText {
  private static final Pattern FORM = Pattern.compile("([1-9][0-9]{0,17})([KMG]?)");

  private ByteText() {}

  /**
   * Parses a number of bytes.
   *
   * @throws InvalidArgumentException if {@code text} is none
   */
  static long parse(String setting, String text) {
    Matcher matcher = FORM.matcher(text);
    if (matcher.matches()) {
      long number = Long.parseLong(matcher.group(1));
      int shift = 10 * " KMG".indexOf((matcher.group(2) + " ").charAt(0));
      if (number <= Long.MAX_VALUE >> shift) {
        return number << shift;
      }
    }
    throw new InvalidArgumentException(
        setting + " is '" + text + "'", "use a number of bytes, or one with K, M or G: 512M");
  }
}
