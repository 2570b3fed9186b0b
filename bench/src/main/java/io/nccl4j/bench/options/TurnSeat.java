package io.nccl4j.bench.options;

import io.nccl4j.InvalidArgumentException;
import java.nio.file.Path;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/**
 * One run's place at the file by which two runs measure in turns.
 *
 * @param side 0 or 1
 * @param file where the file is
 */
public record TurnSeat(int side, Path file) {
  /** Names the seat to a run, as {@link #toString()} writes it. */
  public static final String VARIABLE = "NCCL4J_TURNS";

  private static final Pattern FORM = Pattern.compile("([01]):(.+)");

  /**
   * The seat that {@value #VARIABLE} names; null if it is not set.
   *
   * @throws InvalidArgumentException if it cannot be understood
   */
  static @Nullable TurnSeat of(Map<String, String> environment) {
    String text = environment.get(VARIABLE);
    if (text == null) {
      return null;
    }
    Matcher matcher = FORM.matcher(text);
    if (!matcher.matches()) {
      throw new InvalidArgumentException(
          VARIABLE + " is '" + text + "'", "leave it to ./nccl4j turns, which sets 0:FILE");
    }
    return new TurnSeat(Integer.parseInt(matcher.group(1)), Path.of(matcher.group(2)));
  }

  /** What both runs, and no others, have in common. */
  public String pair() {
    return file.getFileName().toString();
  }

  /** As the variable has it. */
  @Override
  public String toString() {
    return side + ":" + file;
  }
}
