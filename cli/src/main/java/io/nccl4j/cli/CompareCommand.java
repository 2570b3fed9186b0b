package io.nccl4j.cli;

import io.nccl4j.InvalidArgumentException;
import io.nccl4j.bench.report.Comparison;
import io.nccl4j.bench.report.ComparisonWriter;
import io.nccl4j.bench.report.ResultFiles;
import io.nccl4j.bench.report.Run;
import java.util.List;
import java.util.concurrent.Callable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParameterException;
import picocli.CommandLine.Parameters;
import picocli.CommandLine.Spec;

/** {@code nccl4j compare}: whether something became slower. */
@Command(
    name = "compare",
    description =
        "Compares results, line by line: files of nccl4j and nccl-tests (-J or the table), and"
            + " lines peer,op,bytes,ranks,time_us,algbw,busbw,min_us,placement.",
    versionProvider = Version.class,
    usageHelpWidth = 100,
    sortOptions = false,
    footer = {
      "",
      "A side is one file or several, with commas between: a1.json,a2.json. FILE#PEER takes one",
      "peer's lines of a file of several. From 5 files a side on, the sizes up to 64 KiB and those",
      "beyond are also compared together, which finds smaller differences.",
      "Exit code: 0 nothing is worse, 1 internal error, 2 bad option, 3 failure, 7 wrong data,",
      "8 something is worse, 9 nothing is comparable."
    })
final class CompareCommand implements Callable<Integer> {
  private final Context context;

  @Spec private CommandSpec spec;

  @Parameters(
      index = "0",
      arity = "1",
      paramLabel = "BASE",
      split = ",",
      description = "What to compare with.")
  private List<String> base = List.of();

  @Parameters(
      index = "1",
      arity = "1",
      paramLabel = "CHANGED",
      split = ",",
      description = "What to compare.")
  private List<String> changed = List.of();

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

  /** The command. */
  CompareCommand(Context context) {
    this.context = context;
  }

  @Override
  public Integer call() {
    Comparison.Rules rules;
    try {
      rules = new Comparison.Rules(threshold / 100, level, trustRounds);
    } catch (InvalidArgumentException e) {
      throw new ParameterException(spec.commandLine(), e.getMessage(), e);
    }
    Comparison comparison = Comparison.of(read(base), read(changed), rules);
    if (json) {
      ComparisonWriter.writeJson(comparison, context.out());
    } else {
      ComparisonWriter.writeText(comparison, context.out());
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

  /** The runs of one side. */
  private static List<Run> read(List<String> files) {
    ResultFiles results = new ResultFiles();
    files.forEach(results::add);
    List<String> names = results.runs().stream().map(Run::name).toList();
    if (names.isEmpty()) {
      throw new InvalidArgumentException(
          String.join(",", files) + " holds no runs of collectives", "name files of runs");
    }
    for (String file : files) {
      String name = file.substring(file.lastIndexOf('/') + 1);
      List<String> peers = names.stream().filter(one -> one.startsWith(name + "#")).toList();
      if (peers.stream().map(one -> one.replaceFirst("-(near|far|mixed)$", "")).distinct().count()
          > 1) {
        throw new InvalidArgumentException(
            file + " holds several peers: " + String.join(" ", peers),
            "name one as " + peers.getFirst());
      }
    }
    return results.runs();
  }
}
