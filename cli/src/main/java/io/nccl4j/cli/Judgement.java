package io.nccl4j.cli;

import io.nccl4j.InvalidArgumentException;
import io.nccl4j.bench.report.Comparison;
import io.nccl4j.bench.report.ComparisonWriter;
import io.nccl4j.bench.report.Run;
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
      description = "The least difference that is relevant, in %%; default ${DEFAULT-VALUE}.")
  private double threshold;

  @Option(
      names = "--level",
      paramLabel = "PART",
      defaultValue = "0.02",
      description =
          "Of the lines called better or worse, the part that may be chance; default"
              + " ${DEFAULT-VALUE}.")
  private double level;

  @Option(
      names = "--trust-rounds",
      description =
          "Take rounds of one run for as much as runs: where both sides were measured in turns, or"
              + " where runs are known to repeat.")
  private boolean trustRounds;

  @Option(names = "--json", description = "Write JSON.")
  private boolean json;

  /**
   * What the options ask for.
   *
   * @throws ParameterException if one is out of range
   */
  Comparison.Rules rules() {
    try {
      return new Comparison.Rules(threshold / 100, level, trustRounds);
    } catch (InvalidArgumentException e) {
      throw new ParameterException(command.commandLine(), e.getMessage(), e);
    }
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
