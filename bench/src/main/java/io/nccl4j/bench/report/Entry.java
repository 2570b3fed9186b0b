package io.nccl4j.bench.report;

import io.nccl4j.bench.result.LineLatency;
import java.util.Arrays;
import java.util.List;
import java.util.OptionalDouble;
import java.util.OptionalLong;
import java.util.stream.Stream;

/**
 * One measurement that a file holds.
 *
 * @param key what was measured
 * @param micros time of one operation in µs, as the tool reports it
 * @param algBw algorithm bandwidth in GB/s
 * @param busBw bus bandwidth in GB/s; empty where the tool does not tell
 * @param wrong wrong elements; empty if unchecked
 * @param rounds times of one operation in µs, in the order in which they were measured; at least
 *     one, {@code micros} where the tool keeps no more
 * @param line how far apart the ranks' processors were before and after
 */
public record Entry(
    Key key,
    double micros,
    OptionalDouble algBw,
    OptionalDouble busBw,
    OptionalLong wrong,
    List<Double> rounds,
    LineLatency line) {
  /** Copies the list. */
  public Entry {
    rounds = rounds.isEmpty() ? List.of(micros) : List.copyOf(rounds);
  }

  /**
   * Several measurements of one run as one: the geometric mean of their medians. It was moved if
   * one of them was.
   */
  static Entry mean(Key key, List<Entry> parts) {
    double logarithms =
        parts.stream().mapToDouble(part -> Math.log(Samples.median(part))).average().orElseThrow();
    long wrong = parts.stream().mapToLong(part -> part.wrong().orElse(0)).sum();
    double[] nanos =
        parts.stream()
            .flatMap(part -> Stream.of(part.line().beforeNanos(), part.line().afterNanos()))
            .flatMapToDouble(OptionalDouble::stream)
            .toArray();
    LineLatency line =
        nanos.length == 0
            ? LineLatency.UNKNOWN
            : line(
                Arrays.stream(nanos).min().orElseThrow(), Arrays.stream(nanos).max().orElseThrow());
    return new Entry(
        key,
        Math.exp(logarithms),
        OptionalDouble.empty(),
        OptionalDouble.empty(),
        OptionalLong.of(wrong),
        List.of(),
        line);
  }

  /**
   * Lines between near processors, and between far ones, for files that only name the placement, in
   * ns.
   */
  static LineLatency placed(String placement) {
    return switch (placement) {
      case "near" -> line(50, 50);
      case "far" -> line(240, 240);
      case "mixed" -> line(50, 240);
      default -> LineLatency.UNKNOWN;
    };
  }

  private static LineLatency line(double before, double after) {
    return new LineLatency(OptionalDouble.of(before), OptionalDouble.of(after));
  }

  /** What is measured; what a file does not tell is empty. */
  public record Key(
      String operation, String type, String redop, String root, boolean inPlace, long size) {

    /** Whether both are the same as far as both tell. */
    boolean matches(Key other) {
      return size == other.size
          && inPlace == other.inPlace
          && same(operation, other.operation)
          && same(type, other.type)
          && same(redop, other.redop)
          && same(root, other.root);
    }

    private static boolean same(String mine, String other) {
      return mine.isEmpty() || other.isEmpty() || mine.equals(other);
    }

    /** The same out of place. */
    Key outOfPlace() {
      return new Key(operation, type, redop, root, false, size);
    }

    /** The series that the key is a point of: all but the size. */
    Key series() {
      return new Key(operation, type, redop, root, inPlace, 0);
    }

    /** For people: what tells the series from others of the same operation. */
    String label() {
      StringBuilder text = new StringBuilder();
      add(text, type);
      add(text, redop.equals("none") ? "" : redop);
      add(text, root.isEmpty() || root.startsWith("-") ? "" : "root " + root);
      add(text, inPlace ? "in place" : "");
      return text.toString();
    }

    private static void add(StringBuilder text, String part) {
      if (!part.isEmpty()) {
        text.append(text.isEmpty() ? "" : ", ").append(part);
      }
    }
  }
}
