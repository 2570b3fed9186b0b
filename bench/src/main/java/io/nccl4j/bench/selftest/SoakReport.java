package io.nccl4j.bench.selftest;

import com.fasterxml.jackson.core.JsonGenerator;
import io.nccl4j.bench.output.JsonWriter;
import java.io.IOException;
import java.io.PrintStream;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;

/**
 * What a soak found.
 *
 * @param version nccl4j's
 * @param phases the ranks distributed in one way each
 */
public record SoakReport(String version, List<Soak.Result> phases) {
  private static final double MIB = 1 << 20;

  /** Copies the list. */
  public SoakReport {
    phases = List.copyOf(phases);
  }

  /** Whether all was as it must be. */
  public boolean passed() {
    return !phases.isEmpty() && phases.stream().allMatch(Soak.Result::passed);
  }

  /** Writes a line per phase, what went wrong on purpose, and how everything grew. */
  public void writeText(PrintStream out) {
    out.println(
        "# nccl4j " + version + " selftest soak --seed " + phases.getFirst().settings().seed());
    String format = "#%5s %9s %8s %9s %10s %10s %8s %8s %7s%n";
    out.printf(
        format,
        "ranks",
        "processes",
        "time",
        "episodes",
        "operations",
        "compared",
        "slowest",
        "problems",
        "#wrong");
    out.printf(format, "", "", "(s)", "", "", "(MiB)", "(ms)", "", "");
    for (Soak.Result phase : phases) {
      out.printf(
          Locale.ROOT,
          " %5d %9d %8.1f %9d %10d %10.0f %8d %8d %7d%n",
          phase.settings().ranks(),
          phase.settings().processes(),
          phase.seconds(),
          phase.episodes(),
          phase.operations(),
          phase.bytes() / MIB,
          phase.slowestFailureMillis(),
          phase.problems(),
          phase.wrong());
    }
    out.println("# slowest: from a kill to when the last survivor had closed everything");
    for (Soak.Result phase : phases) {
      StringBuilder faults = new StringBuilder();
      new TreeMap<>(phase.faults())
          .forEach((kind, n) -> faults.append(' ').append(kind).append(' ').append(n).append(','));
      out.println("# " + phase.settings().processes() + " processes, episodes with:" + faults);
    }
    out.println(
        "# what is in use: median of the samples' third quarter, of their last, the most growth");
    for (Soak.Result phase : phases) {
      new TreeMap<>(phase.growths())
          .forEach(
              (who, all) ->
                  all.forEach(
                      growth ->
                          out.printf(
                              "# %d processes, %-10s %-12s %12s %12s %12s%s%n",
                              phase.settings().processes(),
                              who,
                              growth.label(),
                              growth.earlyText(),
                              growth.lateText(),
                              growth.limitText(),
                              growth.isLeak() ? "  LEAK" : "")));
      if (phase.growths().isEmpty()) {
        out.println(
            "# "
                + phase.settings().processes()
                + " processes: fewer than "
                + SoakGrowth.FEWEST
                + " samples after the first minute, which tell nothing");
      }
      phase.texts().forEach(text -> out.println("# " + text));
      phase.leaks().forEach(text -> out.println("# " + text));
    }
    out.println("# " + (passed() ? "OK: nothing is wrong, and nothing grows" : "FAILED"));
  }

  /** Writes the same as JSON. */
  public void writeJson(PrintStream out) {
    JsonWriter.print(
        out,
        json -> {
          json.writeStartObject();
          json.writeStringField("nccl4j_version", version);
          json.writeNumberField("seed", phases.getFirst().settings().seed());
          json.writeBooleanField("passed", passed());
          json.writeArrayFieldStart("phases");
          for (Soak.Result phase : phases) {
            write(json, phase);
          }
          json.writeEndArray();
          json.writeEndObject();
        });
  }

  private static void write(JsonGenerator json, Soak.Result phase) throws IOException {
    json.writeStartObject();
    json.writeNumberField("ranks", phase.settings().ranks());
    json.writeNumberField("processes", phase.settings().processes());
    json.writeBooleanField("passed", phase.passed());
    json.writeNumberField("seconds", phase.seconds());
    json.writeNumberField("episodes", phase.episodes());
    json.writeNumberField("operations", phase.operations());
    json.writeNumberField("compared_bytes", phase.bytes());
    json.writeNumberField("slowest_failure_ms", phase.slowestFailureMillis());
    json.writeNumberField("problems", phase.problems());
    json.writeNumberField("wrong", phase.wrong());
    json.writeObjectFieldStart("faults");
    for (Map.Entry<String, Long> fault : new TreeMap<>(phase.faults()).entrySet()) {
      json.writeNumberField(fault.getKey(), fault.getValue());
    }
    json.writeEndObject();
    json.writeArrayFieldStart("growths");
    for (Map.Entry<String, List<SoakGrowth>> one : new TreeMap<>(phase.growths()).entrySet()) {
      for (SoakGrowth growth : one.getValue()) {
        json.writeStartObject();
        json.writeStringField("process", one.getKey());
        json.writeStringField("of", growth.label());
        json.writeNumberField("early", growth.early());
        json.writeNumberField("late", growth.late());
        json.writeNumberField("limit", growth.limit());
        json.writeEndObject();
      }
    }
    json.writeEndArray();
    json.writeArrayFieldStart("texts");
    for (String text : phase.texts()) {
      json.writeString(text);
    }
    for (String text : phase.leaks()) {
      json.writeString(text);
    }
    json.writeEndArray();
    json.writeEndObject();
  }
}
