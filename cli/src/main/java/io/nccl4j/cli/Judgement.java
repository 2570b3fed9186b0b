package io.nccl4j.cli;

import io.nccl4j.bench.report.Comparison;
import io.nccl4j.bench.report.ComparisonWriter;
import io.nccl4j.bench.report.Run;
import io.nccl4j.cli.options.OptionRange;
import java.io.PrintStream;
import java.util.List;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParameterException;
import picocli.CommandLine.Spec;

/** How commands that compare decide, and how they say what they found: their common options. */
final class Judgement {
  @Spec(Spec.Target.MIXEE)
  private CommandSpec command;

  @Option(
      names = "--threshold",
      paramLabel = "PERCENT",
      defaultValue = "3",
      description = "Smallest relevant difference, in %%; default ${DEFAULT-VALUE}.")
  private double threshold;

  @Option(
      names = "--level",
      paramLabel = "PART",
      defaultValue = "0.02",
      description =
          "Fraction of the lines called better or worse that may be so by chance; default"
              + " ${DEFAULT-VALUE}.")
  private double level;

  @Option(
      names = "--trust-rounds",
      description =
          "Treat the rounds of a run like separate runs: for sides that were measured in turns, or"
              + " runs that are known to be repeatable.")
  private boolean trustRounds;

  @Option(names = "--json", description = "Write JSON.")
  private boolean json;

  /**
   * What the options ask for.
   *
   * @throws ParameterException if one is out of range
   */
  Comparison.Rules rules() {
    return OptionRange.checked(
        command, () -> new Comparison.Rules(threshold / 100, level, trustRounds));
  }

  /** Compares, writes what follows, and returns the exit code that says so, too. */
  int judge(List<Run> base, List<Run> changed, Comparison.Rules rules, PrintStream out) {
    Comparison comparison = Comparison.of(base, changed, rules);
    if (json) {
      ComparisonWriter.writeJson(comparison, out);
    } else {
      ComparisonWriter.writeText(comparison, out);
    }
    ExitCode code =
        switch (comparison.worst()) {
          case WRONG -> ExitCode.WRONG_DATA;
          case WORSE -> ExitCode.SLOWER;
          case NOT_COMPARABLE -> ExitCode.NOT_COMPARABLE;
          case BETTER, SAME, UNSURE -> ExitCode.OK;
        };
    return code.number();
  }
}
