package io.nccl4j.bench.selftest;

import io.nccl4j.bench.machine.ByteSize;
import io.nccl4j.bench.output.Json;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.TreeMap;
import java.util.stream.Stream;

/**
 * What a soak found.
 *
 * @param version nccl4j's
 * @param phases the ranks distributed in one way each
 */
public record SoakReport(String version, List<Soak.Result> phases) {
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
          (double) phase.bytes() / ByteSize.MIB,
          phase.slowestFailureMillis(),
          phase.problems(),
          phase.wrong());
    }
    out.println("# slowest: from a kill until the last survivor had closed everything");
    for (Soak.Result phase : phases) {
      StringBuilder faults = new StringBuilder();
      new TreeMap<>(phase.faults())
          .forEach((kind, n) -> faults.append(' ').append(kind).append(' ').append(n).append(','));
      out.println("# " + phase.settings().processes() + " processes, episodes with:" + faults);
    }
    out.println(
        "# in use: median of the third quarter of the samples, of the last one, and allowed"
            + " growth");
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
                + " samples after the first minute, which prove nothing");
      }
      phase.texts().forEach(text -> out.println("# " + text));
      phase.leaks().forEach(text -> out.println("# " + text));
    }
    out.println("# " + (passed() ? "OK: nothing is wrong, and nothing grows" : "FAILED"));
  }

  /** Writes the same as JSON. */
  public void writeJson(PrintStream out) {
    Json.print(
        out,
        new Json.Fields()
            .with("nccl4j_version", version)
            .with("seed", phases.getFirst().settings().seed())
            .with("passed", passed())
            .with("phases", phases, SoakReport::json));
  }

  private static Json.Fields json(Soak.Result phase) {
    List<Json.Fields> growths = new ArrayList<>();
    new TreeMap<>(phase.growths())
        .forEach((process, all) -> all.forEach(growth -> growths.add(json(process, growth))));
    return new Json.Fields()
        .with("ranks", phase.settings().ranks())
        .with("processes", phase.settings().processes())
        .with("passed", phase.passed())
        .with("seconds", phase.seconds())
        .with("episodes", phase.episodes())
        .with("operations", phase.operations())
        .with("compared_bytes", phase.bytes())
        .with("slowest_failure_ms", phase.slowestFailureMillis())
        .with("problems", phase.problems())
        .with("wrong", phase.wrong())
        .with("faults", new TreeMap<>(phase.faults()))
        .with("growths", growths)
        .with("texts", Stream.concat(phase.texts().stream(), phase.leaks().stream()).toList());
  }

  private static Json.Fields json(String process, SoakGrowth growth) {
    return new Json.Fields()
        .with("process", process)
        .with("of", growth.label())
        .with("early", growth.early())
        .with("late", growth.late())
        .with("limit", growth.limit());
  }
}
