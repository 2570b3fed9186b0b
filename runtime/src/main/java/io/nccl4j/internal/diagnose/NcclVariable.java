package io.nccl4j.internal.diagnose;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;

/**
 * A variable that some release of NCCL reads.
 *
 * @param name its name
 * @param standard its default, as NCCL's manual or source has it; empty if there is none
 * @param since the first release that has it, as {@code ncclGetVersion} counts: 22403 for 2.24.3
 * @param removed the first release that does not have it any more; 0 if all do
 * @param text what it is
 * @param danger what to mind when it is set to something else; empty if nothing
 * @param dangerous the values that this is about; empty if all are
 */
record NcclVariable(
    String name,
    String standard,
    int since,
    int removed,
    String text,
    String danger,
    Set<String> dangerous) {
  private static final String FILE = "nccl-variables.txt";
  private static final int COLUMNS = 6;

  /** {@code INFO,TRACE: text}: only these values have to be minded. */
  private static final Pattern VALUES = Pattern.compile("([A-Z0-9,]+): (.*)");

  private static final Map<String, NcclVariable> ALL = read();

  private static Map<String, NcclVariable> read() {
    try (BufferedReader reader =
        new BufferedReader(
            new InputStreamReader(
                Objects.requireNonNull(NcclVariable.class.getResourceAsStream(FILE)),
                StandardCharsets.UTF_8))) {
      return reader
          .lines()
          .filter(line -> !line.startsWith("#"))
          .map(NcclVariable::parse)
          .collect(Collectors.toMap(NcclVariable::name, v -> v, (a, b) -> a, TreeMap::new));
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private static NcclVariable parse(String line) {
    String[] parts = line.split("\\|", -1);
    if (parts.length != COLUMNS) {
      throw new IllegalStateException(FILE + ": " + line);
    }
    Matcher values = VALUES.matcher(parts[5].strip());
    boolean some = values.matches();
    return new NcclVariable(
        parts[0].strip(),
        parts[1].strip(),
        number(parts[2].strip()),
        number(parts[3].strip()),
        parts[4].strip(),
        some ? values.group(2) : parts[5].strip(),
        some ? Set.of(values.group(1).split(",")) : Set.of());
  }

  private static int number(String release) {
    int number = 0;
    String[] parts = release.isEmpty() ? new String[0] : release.split("\\.");
    for (int i = 0; i < 3; i++) {
      number = number * 100 + (i < parts.length ? Integer.parseInt(parts[i]) : 0);
    }
    return number;
  }

  /** All of them, by name. */
  static Map<String, NcclVariable> all() {
    return Collections.unmodifiableMap(ALL);
  }

  /** Whether there is something to mind about a value. */
  boolean isDangerous(String value) {
    boolean isStandard = value.isEmpty() || value.equalsIgnoreCase(standard.split(",")[0].strip());
    return !danger.isEmpty()
        && !isStandard
        && (dangerous.isEmpty() || dangerous.contains(value.toUpperCase(Locale.ROOT)));
  }

  /** For example {@code 2.24.3}. */
  static String release(int number) {
    return number / 10000 + "." + number / 100 % 100 + "." + number % 100;
  }

  /**
   * The name that is most like another one, if it is like it: by the fewest letters to insert, to
   * remove, to replace, or to swap with the next one.
   */
  static Optional<String> nearest(String name, Iterable<String> names) {
    int limit = Math.max(2, name.length() / 5);
    String best = null;
    for (String candidate : names) {
      int distance = distance(name, candidate);
      if (distance <= limit) {
        best = candidate;
        limit = distance - 1;
      }
    }
    return Optional.ofNullable(best);
  }

  /** Levenshtein's distance, with swaps of neighbours. */
  static int distance(String a, String b) {
    int[][] rows = new int[a.length() + 1][b.length() + 1];
    for (int i = 0; i <= a.length(); i++) {
      for (int j = 0; j <= b.length(); j++) {
        if (i == 0 || j == 0) {
          rows[i][j] = i + j;
          continue;
        }
        int replaced = rows[i - 1][j - 1] + (a.charAt(i - 1) == b.charAt(j - 1) ? 0 : 1);
        rows[i][j] = Math.min(replaced, 1 + Math.min(rows[i - 1][j], rows[i][j - 1]));
        boolean swapped =
            i > 1
                && j > 1
                && a.charAt(i - 1) == b.charAt(j - 2)
                && a.charAt(i - 2) == b.charAt(j - 1);
        if (swapped) {
          rows[i][j] = Math.min(rows[i][j], 1 + rows[i - 2][j - 2]);
        }
      }
    }
    return rows[a.length()][b.length()];
  }
}
