package io.nccl4j.cli;

import io.nccl4j.InvalidArgumentException;
import io.nccl4j.Provider;
import io.nccl4j.bench.selftest.Soak;
import io.nccl4j.bench.selftest.SoakProcess;
import io.nccl4j.bench.selftest.SoakReport;
import io.nccl4j.cli.options.OptionRange;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadLocalRandom;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;

/** {@code nccl4j selftest soak}. */
@Command(
    name = "soak",
    description =
        "Runs random operations while processes are killed and stopped, and checks that every"
            + " result is right, no rank waits for ever, and nothing grows.",
    footer = {
      "",
      "Exit code: 0 no problem was found, 1 internal error, 2 bad option, 3 failure, 7 data were",
      "wrong, a failure was not as documented, or something grew."
    })
final class SoakCommand extends Subcommand {
  private static final long NANOS = 60_000_000_000L;
  private static final double MOST_MINUTES = 60 * 24 * 365;

  @Option(
      names = "--minutes",
      paramLabel = "N",
      defaultValue = "10",
      description = "How long to run, in minutes; default ${DEFAULT-VALUE}.")
  private double minutes;

  @Option(
      names = "--ranks",
      paramLabel = "N",
      defaultValue = "4",
      description = "Ranks; default ${DEFAULT-VALUE}.")
  private int ranks;

  @Option(
      names = "--processes",
      paramLabel = "N",
      description =
          "Processes, each with the same number of ranks; by default one for half of the time, then"
              + " one per rank.")
  private @Nullable Integer processes;

  @Option(
      names = "--seed",
      paramLabel = "N",
      description = "Seed of the random choices, which is printed; by default a new one each time.")
  private @Nullable Long seed;

  @Option(
      names = "--first",
      paramLabel = "N",
      defaultValue = "0",
      description = "Number of the first episode; default ${DEFAULT-VALUE}.")
  private int first;

  @Option(
      names = "--episodes",
      paramLabel = "N",
      description = "Most episodes to run with each number of processes.")
  private @Nullable Integer episodes;

  @Option(names = "--no-kills", description = "Kill no process.")
  private boolean noKills;

  @Option(names = "--no-stops", description = "Stop no process.")
  private boolean noStops;

  @Option(names = "--json", description = "Write JSON instead of the table.")
  private boolean json;

  @Option(names = "--child", hidden = true, description = "For the processes with the ranks.")
  private boolean child;

  /** The command. */
  SoakCommand(Context context) {
    super(context);
  }

  @Override
  public Integer call() throws Exception {
    long drawn = seed == null ? ThreadLocalRandom.current().nextInt(1, Integer.MAX_VALUE) : seed;
    List<Soak.Settings> phases = OptionRange.checked(spec, () -> phases(drawn));
    return child ? asProcess(phases.getFirst()) : parent(drawn, phases);
  }

  private List<Soak.Settings> phases(long drawn) {
    if (!(minutes > 0 && minutes <= MOST_MINUTES)) {
      throw new InvalidArgumentException("minutes is " + minutes, "use a number above 0");
    }
    if (first < 0 || episodes != null && episodes < 1) {
      throw new InvalidArgumentException(
          "first is " + first + " and episodes " + episodes, "use 0 or more, and 1 or more");
    }
    List<Soak.Settings> phases = new ArrayList<>();
    for (int count : processes == null ? new int[] {1, ranks} : new int[] {processes}) {
      phases.add(new Soak.Settings(drawn, ranks, count, !noKills, !noStops));
    }
    return phases;
  }

  // ---- the process with the table

  private int parent(long drawn, List<Soak.Settings> phases) throws InterruptedException {
    note("seed " + drawn);
    List<Soak.Result> results = new ArrayList<>();
    for (Soak.Settings settings : phases) {
      List<String> arguments =
          new ArrayList<>(
              List.of(
                  "selftest",
                  "soak",
                  "--child",
                  "--seed",
                  Long.toString(drawn),
                  "--ranks",
                  Integer.toString(ranks),
                  "--processes",
                  Integer.toString(settings.processes())));
      if (noKills) {
        arguments.add("--no-kills");
      }
      if (noStops) {
        arguments.add("--no-stops");
      }
      try (SoakProcesses all = new SoakProcesses(context, settings.processes(), arguments);
          SoakProgress progress = new SoakProgress(context)) {
        results.add(
            Soak.run(
                settings,
                all,
                first,
                episodes == null ? Integer.MAX_VALUE : episodes,
                Duration.ofNanos((long) (minutes * NANOS / phases.size())),
                progress));
      }
    }
    SoakReport report = new SoakReport(Provider.get().version(), results);
    if (json) {
      report.writeJson(context.out());
    } else {
      report.writeText(context.out());
    }
    return (report.passed() ? ExitCode.OK : ExitCode.WRONG_DATA).number();
  }

  private void note(String text) {
    context.err().println("nccl4j: soak: " + text);
  }

  // ---- the processes with the ranks

  private int asProcess(Soak.Settings settings) throws InterruptedException {
    BlockingQueue<String> lines = new LinkedBlockingQueue<>();
    Thread.ofPlatform().daemon().name("parent-watch").start(() -> read(lines));
    SoakProcess process = new SoakProcess(settings, this::answer);
    while (true) {
      process.handle(lines.take());
    }
  }

  private synchronized void answer(String line) {
    context.out().println(line);
    context.out().flush();
  }

  private static void read(BlockingQueue<String> lines) {
    try (BufferedReader in =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
      for (String line = in.readLine(); line != null; line = in.readLine()) {
        lines.add(line);
      }
    } catch (IOException e) {
      System.err.println("nccl4j: soak: the process that started this one cannot be read: " + e);
    }
    // The parent is gone, or wants no more. No hooks: they might wait for peers, and nobody is left
    // to see what they would tidy up.
    Runtime.getRuntime().halt(ExitCode.INTERNAL.number());
  }
}
