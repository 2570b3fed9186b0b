package io.nccl4j.bench.options;

import io.nccl4j.InvalidArgumentException;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/**
 * How nccl-tests' variables divide the ranks into groups that run the same operation side by side.
 * All ranks of a process have one color, by the number of the process; but if there is only one
 * process, ranks have colors, by their own numbers.
 *
 * @param operator what is done with the number
 * @param operand the other operand
 */
public record Grouping(Operator operator, int operand) {
  /** Takes precedence: a hexadecimal mask. */
  public static final String MASK = "NCCL_TESTS_SPLIT_MASK";

  /** An operator and a number, for example {@code MOD 2} or {@code &0x7}. */
  public static final String VARIABLE = "NCCL_TESTS_SPLIT";

  private static final Pattern FORM =
      Pattern.compile("\\s*(AND|&|OR|\\||MOD|%|DIV|/)\\s*(0X[0-9A-F]+|0B[01]+|[0-9]+)\\s*");
  private static final Pattern HEX = Pattern.compile("\\s*(?:0X)?([0-9A-F]+)\\s*");

  /** What makes a color of a number. */
  public enum Operator {
    /** Bits that both have. */
    AND,
    /** Bits that one has. */
    OR,
    /** The rest of a division. */
    MOD,
    /** The quotient. */
    DIV
  }

  /**
   * The split that the environment asks for; null if it asks for none.
   *
   * @throws InvalidArgumentException if it cannot be understood
   */
  public static @Nullable Grouping of(Map<String, String> environment) {
    String mask = environment.get(MASK);
    if (mask != null) {
      Matcher hex = HEX.matcher(mask.toUpperCase(Locale.ROOT));
      if (!hex.matches()) {
        throw bad(MASK, mask, "use a hexadecimal number");
      }
      return new Grouping(Operator.AND, number(MASK, mask, hex.group(1), 16));
    }
    String text = environment.get(VARIABLE);
    if (text == null) {
      return null;
    }
    Matcher form = FORM.matcher(text.toUpperCase(Locale.ROOT));
    if (!form.matches()) {
      throw bad(VARIABLE, text, "use AND, OR, MOD or DIV, or & | % /, and a number");
    }
    Operator operator =
        switch (form.group(1)) {
          case "AND", "&" -> Operator.AND;
          case "OR", "|" -> Operator.OR;
          case "MOD", "%" -> Operator.MOD;
          default -> Operator.DIV;
        };
    String digits = form.group(2);
    int radix = digits.startsWith("0X") ? 16 : digits.startsWith("0B") ? 2 : 10;
    int operand = number(VARIABLE, text, radix == 10 ? digits : digits.substring(2), radix);
    if (operand == 0 && (operator == Operator.MOD || operator == Operator.DIV)) {
      throw bad(VARIABLE, text, "divide by 1 or more");
    }
    return new Grouping(operator, operand);
  }

  private static int number(String variable, String text, String digits, int radix) {
    try {
      return Integer.parseInt(digits, radix);
    } catch (NumberFormatException e) {
      throw (InvalidArgumentException) bad(variable, text, "use a number below 2^31").causedBy(e);
    }
  }

  private static InvalidArgumentException bad(String variable, String text, String remedy) {
    return new InvalidArgumentException(variable + " is '" + text + "'", remedy);
  }

  /**
   * The color of a rank.
   *
   * @param ranksPerProcess ranks of each process
   * @param nranks ranks of all processes
   */
  public int color(int rank, int ranksPerProcess, int nranks) {
    int number = ranksPerProcess == nranks ? rank : rank / ranksPerProcess;
    return switch (operator) {
      case AND -> number & operand;
      case OR -> number | operand;
      case MOD -> number % operand;
      case DIV -> number / operand;
    };
  }

  /** The numbers of ranks that groups have, each once. */
  int[] sizes(int ranksPerProcess, int nranks) {
    Map<Integer, Integer> ranks = new TreeMap<>();
    IntStream.range(0, nranks)
        .forEach(rank -> ranks.merge(color(rank, ranksPerProcess, nranks), 1, Integer::sum));
    return ranks.values().stream().mapToInt(Integer::intValue).distinct().toArray();
  }
}
