package io.nccl4j.cli;

import io.nccl4j.InvalidArgumentException;
import io.nccl4j.bench.report.Comparison;
import io.nccl4j.bench.report.ResultFiles;
import io.nccl4j.bench.report.Run;
import java.util.List;
import java.util.concurrent.Callable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Parameters;

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

  @Mixin private final Judgement judgement = new Judgement();

  /** The command. */
  CompareCommand(Context context) {
    this.context = context;
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
