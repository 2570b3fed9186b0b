package io.nccl4j.bench.report;

import com.fasterxml.jackson.databind.json.JsonMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.nccl4j.bench.machine.ByteSize;
import java.io.PrintStream;
import java.util.List;
import java.util.Locale;

/** Writes a {@link Comparison} as a table or as JSON. */
public final class ComparisonWriter {
  private static final int LEAST_OPERATION = 14;
  private static final int LEAST_LABEL = 18;
  private static final String NAMES = "%%-%ds %%-%ds ";
  private static final String NUMBERS = "%16s %10s %10s %7s %15s %8s %8s %8s %8s  %s";

  private ComparisonWriter() {}

  /** Writes a line for each measurement that both sides have, and what follows from all. */
  public static void writeText(Comparison comparison, PrintStream out) {
    sides("# base   ", comparison.base(), out);
    sides("# changed", comparison.changed(), out);
    String names = names(comparison);
    String titles = "#" + names + NUMBERS;
    out.println(
        String.format(
            Locale.ROOT,
            titles,
            "operation",
            "",
            "size",
            "base",
            "changed",
            "ratio",
            "95 % interval",
            "spread",
            "spread",
            "runs",
            "line",
            "verdict"));
    out.println(
        String.format(
            Locale.ROOT,
            titles,
            "",
            "",
            "(B)",
            "(us)",
            "(us)",
            "",
            "of the ratio",
            "base",
            "changed",
            "",
            "(ns)",
            ""));
    for (Comparison.Line line : comparison.lines()) {
      out.println(row(names, line));
    }
    if (!comparison.together().isEmpty()) {
      out.println("# together (geometric means, in and out of place):");
      comparison.together().forEach(line -> out.println(row(names, line)));
    }
    if (comparison.unmatched() > 0) {
      out.println("# " + comparison.unmatched() + " measurements are on one side only");
    }
    StringBuilder counts = new StringBuilder();
    for (Verdict verdict : Verdict.values()) {
      if (comparison.count(verdict) > 0) {
        counts
            .append(counts.isEmpty() ? "" : ", ")
            .append(comparison.count(verdict))
            .append(' ')
            .append(verdict.label());
      }
    }
    if (comparison.advice() != null) {
      out.println("# " + comparison.advice());
    }
    out.println("# " + comparison.worst().label() + ": " + counts);
  }

  private static void sides(String name, List<Run> runs, PrintStream out) {
    String names = String.join(" ", runs.stream().map(Run::name).toList());
    out.println(name + " " + names);
  }

  /** The format of the first two columns, as wide as what is in them. */
  private static String names(Comparison comparison) {
    int operation = LEAST_OPERATION;
    int label = LEAST_LABEL;
    for (List<Comparison.Line> lines : List.of(comparison.lines(), comparison.together())) {
      for (Comparison.Line line : lines) {
        operation = Math.max(operation, line.key().operation().length());
        label = Math.max(label, line.key().label().length());
      }
    }
    return String.format(Locale.ROOT, NAMES, operation, label);
  }

  private static String row(String names, Comparison.Line line) {
    String interval =
        Double.isNaN(line.low())
            ? "N/A"
            : String.format(Locale.ROOT, "%.3f..%.3f", line.low(), line.high());
    return String.format(
        Locale.ROOT,
        " " + names + "%16s %10.2f %10.2f %7.3f %15s %8s %8s %8s %8s  %s",
        line.key().operation(),
        line.key().label(),
        size(line),
        line.baseMicros(),
        line.changedMicros(),
        line.ratio(),
        interval,
        percent(line.baseSpread()),
        percent(line.changedSpread()),
        line.inTurns() ? line.baseRuns() + " turns" : line.baseRuns() + "/" + line.changedRuns(),
        Double.isNaN(line.lineNanos())
            ? "N/A"
            : String.format(Locale.ROOT, "%.0f", line.lineNanos()),
        line.verdict().label());
  }

  private static String size(Comparison.Line line) {
    return line.most() == line.key().size()
        ? Long.toString(line.most())
        : ByteSize.text(line.key().size()) + ".." + ByteSize.text(line.most());
  }

  private static String percent(double part) {
    return Double.isNaN(part) ? "N/A" : String.format(Locale.ROOT, "%.1f%%", 100 * part);
  }

  /** Writes the same as JSON; what is not known is null. */
  public static void writeJson(Comparison comparison, PrintStream out) {
    ObjectNode root = JsonMapper.builder().build().createObjectNode();
    root.put("verdict", comparison.worst().label());
    names(root.putArray("base"), comparison.base());
    names(root.putArray("changed"), comparison.changed());
    root.put("unmatched", comparison.unmatched());
    root.put("advice", comparison.advice());
    lines(root.putArray("lines"), comparison.lines());
    lines(root.putArray("together"), comparison.together());
    out.println(root.toPrettyString());
  }

  private static void lines(ArrayNode array, List<Comparison.Line> lines) {
    for (Comparison.Line line : lines) {
      ObjectNode one = array.addObject();
      one.put("operation", line.key().operation());
      one.put("size", line.key().size());
      one.put("largest_size", line.most());
      one.put("type", line.key().type());
      one.put("redop", line.key().redop());
      one.put("root", line.key().root());
      one.put("in_place", line.key().inPlace());
      one.put("base_us", line.baseMicros());
      one.put("changed_us", line.changedMicros());
      one.put("ratio", line.ratio());
      number(one, "ratio_low", line.low());
      number(one, "ratio_high", line.high());
      number(one, "base_spread", line.baseSpread());
      number(one, "changed_spread", line.changedSpread());
      one.put("base_runs", line.baseRuns());
      one.put("changed_runs", line.changedRuns());
      one.put("in_turns", line.inTurns());
      number(one, "p", line.p());
      number(one, "line_latency_ns", line.lineNanos());
      one.put("verdict", line.verdict().label());
    }
  }

  private static void names(ArrayNode array, List<Run> runs) {
    runs.forEach(run -> array.add(run.name()));
  }

  private static void number(ObjectNode node, String name, double value) {
    if (Double.isNaN(value)) {
      node.putNull(name);
    } else {
      node.put(name, value);
    }
  }
}
