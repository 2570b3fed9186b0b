package io.nccl4j.cli;

import io.nccl4j.InvalidArgumentException;
import io.nccl4j.SystemErrorException;
import io.nccl4j.bench.report.Comparison;
import io.nccl4j.bench.report.ResultFiles;
import io.nccl4j.cli.options.OptionRange;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Option;
import picocli.CommandLine.Parameters;

/** {@code nccl4j turns}: measures two commands side by side, and compares them. */
@Command(
    name = "turns",
    description =
        "Measures two commands in turns of a few milliseconds, so that disturbances affect both"
            + " alike, and compares them.",
    footer = {
      "",
      "BASE and CHANGED are commands for the shell, in quotes: './nccl4j allreduce -t 2' and",
      "'../other/nccl4j allreduce -t 2'. -J FILE is appended to each.",
      "Exit code: 0 nothing is worse, 1 internal error, 2 bad option, 3 failure, 7 wrong data,",
      "8 something is worse, 9 nothing is comparable."
    })
final class TurnsCommand extends Subcommand {
  @Parameters(
      index = "0",
      arity = "1",
      paramLabel = "BASE",
      description = "Command to compare with.")
  private String base = "";

  @Parameters(index = "1", arity = "1", paramLabel = "CHANGED", description = "Command to compare.")
  private String changed = "";

  @Option(
      names = {"-n", "--pairs"},
      paramLabel = "N",
      defaultValue = "8",
      description =
          "Pairs of runs; with fewer than 8, differences are less certain; default"
              + " ${DEFAULT-VALUE}.")
  private int pairs;

  @Option(
      names = "--whole",
      description =
          "Run each command as a whole, one after the other, for commands other than nccl4j's;"
              + " this reveals only larger differences.")
  private boolean whole;

  @Option(
      names = {"-o", "--output_folder"},
      paramLabel = "FOLDER",
      description =
          "Folder for the results, base-1.json and so on; by default a new temporary one.")
  private @Nullable Path output;

  @Mixin private final Judgement judgement = new Judgement();

  /** The command. */
  TurnsCommand(Context context) {
    super(context);
  }

  @Override
  public Integer call() throws InterruptedException {
    OptionRange.checked(spec, () -> OptionRange.positive("pairs", pairs));
    Comparison.Rules rules = judgement.rules();
    Path folder = folder();
    context.out().println("# Writing results to " + folder);
    ResultFiles before = new ResultFiles();
    ResultFiles after = new ResultFiles();
    for (int pair = 1; pair <= pairs; pair++) {
      TakingTurns.Side one = new TakingTurns.Side(base, folder.resolve("base-" + pair + ".json"));
      TakingTurns.Side other =
          new TakingTurns.Side(changed, folder.resolve("changed-" + pair + ".json"));
      TakingTurns.run(context, pair % 2 == 1 ? List.of(one, other) : List.of(other, one), whole);
      before.add(one.results().toString());
      after.add(other.results().toString());
      Comparison.requireAlike(before.runs(), after.runs());
      context.err().println("nccl4j: turns, " + pair + " of " + pairs + " pairs");
    }
    return judgement.judge(before.runs(), after.runs(), rules, context.out());
  }

  private Path folder() {
    try {
      if (output == null) {
        return Files.createTempDirectory("nccl4j-turns");
      }
      Path folder = Files.createDirectories(output).toAbsolutePath();
      try (Stream<Path> files = Files.list(folder)) {
        if (files.findAny().isPresent()) {
          throw new InvalidArgumentException(
              folder + " is not empty", "name a new folder, to keep results apart");
        }
      }
      return folder;
    } catch (IOException e) {
      throw (SystemErrorException)
          new SystemErrorException(
                  "cannot use the folder "
                      + (output == null ? "for temporary files" : output)
                      + ": "
                      + e,
                  "name a writable folder with -o")
              .causedBy(e);
    }
  }
}
