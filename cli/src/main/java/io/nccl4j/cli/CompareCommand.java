package io.nccl4j.cli;

import io.nccl4j.InvalidArgumentException;
import io.nccl4j.bench.report.Comparison;
import io.nccl4j.bench.report.ResultFiles;
import io.nccl4j.bench.report.Run;
import java.util.List;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Parameters;

/** {@code nccl4j compare}: whether something became slower. */
@Command(
    name = "compare",
    description =
        "Compares results, line by line: files of nccl4j and nccl-tests (-J or the table), and"
            + " lines peer,op,bytes,ranks,time_us,algbw,busbw,min_us,placement.",
    footer = {
      "",
      "Each side is one file or several, separated by commas: a1.json,a2.json. FILE#PEER selects"
          + " one",
      "peer's lines from a file with several. With 5 files or more per side, all sizes up to 64"
          + " KiB",
      "and all larger ones are also compared together, which reveals smaller differences.",
      "Exit code: 0 nothing is worse, 1 internal error, 2 bad option, 3 failure, 7 wrong data,",
      "8 something is worse, 9 nothing is comparable."
    })
final class CompareCommand extends Subcommand {
  @Parameters(
      index = "0",
      arity = "1",
      paramLabel = "BASE",
      split = ",",
      description = "Results to compare with.")
  private List<String> base = List.of();

  @Parameters(
      index = "1",
      arity = "1",
      paramLabel = "CHANGED",
      split = ",",
      description = "Results to compare.")
  private List<String> changed = List.of();

  @Mixin private final Judgement judgement = new Judgement();

  /** The command. */
  CompareCommand(Context context) {
    super(context);
  }

  @Override
  public Integer call() {
    Comparison.Rules rules = judgement.rules();
    return judgement.judge(read(base), read(changed), rules, context.out());
  }

  /** The runs of one side. */
  private static List<Run> read(List<String> files) {
    ResultFiles results = new ResultFiles();
    files.forEach(results::add);
    List<String> names = results.runs().stream().map(Run::name).toList();
    if (names.isEmpty()) {
      throw new InvalidArgumentException(
          String.join(",", files) + " contains no results of collectives", "name other files");
    }
    for (String file : files) {
      String name = file.substring(file.lastIndexOf('/') + 1);
      List<String> peers = names.stream().filter(one -> one.startsWith(name + "#")).toList();
      if (peers.stream().map(one -> one.replaceFirst("-(near|far|mixed)$", "")).distinct().count()
          > 1) {
        throw new InvalidArgumentException(
            file + " contains several peers: " + String.join(" ", peers),
            "name one, for example " + peers.getFirst());
      }
    }
    return results.runs();
  }
}
