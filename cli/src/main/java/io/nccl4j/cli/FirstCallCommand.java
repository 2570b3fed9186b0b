package io.nccl4j.cli;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.Device;
import io.nccl4j.Provider;
import io.nccl4j.bench.options.Options;
import io.nccl4j.bench.output.FirstCallJson;
import io.nccl4j.bench.run.FirstCall;
import io.nccl4j.bench.run.RankRange;
import io.nccl4j.bench.selftest.SelfTest;
import io.nccl4j.cli.options.OptionRange;
import io.nccl4j.cli.process.RankEnvironment;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;

/** {@code nccl4j selftest first-call}. */
@Command(
    name = "first-call",
    description =
        "Shows what a warm-up does for the first calls of a process: pairs of fresh processes"
            + " exchange and sum 1000 bytes, with and without one.",
    footer = {
      "",
      "Exit code: 0 first calls meet the goal after a warm-up, 1 internal error, 2 bad option,",
      "3 failure, 4 timeout, 7 they do not."
    })
final class FirstCallCommand extends Subcommand {
  private static final int PROCESSES = 2;

  /** What a child puts in front of its times. */
  private static final String TIMES = "times ";

  @Option(
      names = "--backend",
      paramLabel = "NAME",
      defaultValue = "host",
      description = "host or cuda; default ${DEFAULT-VALUE}.")
  private String backend;

  @Option(
      names = {"-n", "--pairs"},
      paramLabel = "N",
      defaultValue = "30",
      description =
          "Pairs of processes with a warm-up, and as many without one; default ${DEFAULT-VALUE}.")
  private int pairs;

  @Option(
      names = {"-J", "--output_file"},
      paramLabel = "FILE",
      description = "Also write JSON, to FILE or, if that exists, to FILE.0, FILE.1 and so on.")
  private @Nullable Path output;

  @Option(names = "--cold", hidden = true, description = "For the processes of a pair.")
  private boolean cold;

  /** The command. */
  FirstCallCommand(Context context) {
    super(context);
  }

  @Override
  public Integer call() throws Exception {
    Backend named = OptionRange.checked(spec, () -> OptionRange.oneBackend(backend));
    Options options = Options.builder().backend(named).build();
    RankEnvironment ranks =
        OptionRange.checked(
            spec,
            () -> {
              OptionRange.positive("pairs", pairs);
              return RankEnvironment.of(context.environment(), options, PROCESSES);
            });
    if (ranks.isParent()) {
      return compare(options);
    }
    RankRange range = ranks.range();
    Device device = SelfTest.device(named, range.firstRank());
    try (Communicator communicator = range.join(device, FirstCall.config())) {
      List<FirstCall.Times> times = FirstCall.onRank(communicator, !cold);
      if (range.reports()) {
        times.forEach(one -> context.out().println(TIMES + one.format()));
      }
    }
    return ExitCode.OK.number();
  }

  /** Pairs in turn, so that whatever else the machine does meets both kinds. */
  private int compare(Options options) {
    List<FirstCall.Times> coldTimes = new ArrayList<>();
    List<FirstCall.Times> warmTimes = new ArrayList<>();
    List<String> warm = List.of("selftest", "first-call", "--backend", backend);
    List<String> cold = List.of("selftest", "first-call", "--backend", backend, "--cold");
    for (int pair = 1; pair <= pairs; pair++) {
      int code = run(options, cold, coldTimes);
      if (code == 0) {
        code = run(options, warm, warmTimes);
      }
      if (code != 0) {
        return code;
      }
      context.err().printf(Locale.ROOT, "nccl4j: first-call, %d of %d pairs%n", pair, pairs);
    }
    List<FirstCall.Summary> summaries = FirstCall.summarize(coldTimes, warmTimes);
    table(summaries);
    boolean passed = summaries.stream().allMatch(FirstCall.Summary::meetsGoal);
    if (output != null) {
      Path written =
          FirstCallJson.write(
              output, Provider.get().version(), backend, coldTimes, warmTimes, summaries);
      context.out().println("# Writing JSON output to " + written);
    }
    context
        .out()
        .println("# " + (passed ? "OK: first calls meet the goal" : "FAILED: a goal is missed"));
    return (passed ? ExitCode.OK : ExitCode.WRONG_DATA).number();
  }

  private int run(Options options, List<String> arguments, List<FirstCall.Times> times) {
    return new ProcessRun(SharedGpus.allowedIn(context, options.backend()), options, PROCESSES)
        .withVariables(rank -> SharedGpus.ofProcess(options.backend(), rank))
        .run(
            arguments,
            line -> {
              if (line.startsWith(TIMES)) {
                times.add(FirstCall.Times.parse(line.substring(TIMES.length())));
              }
            });
  }

  private void table(List<FirstCall.Summary> summaries) {
    context
        .out()
        .printf("# nccl4j %s selftest first-call, %s%n", Provider.get().version(), backend);
    String format = "#%-10s %6s %6s %9s %9s %9s %9s %9s %9s %9s%n";
    context
        .out()
        .printf(
            format,
            "operation",
            "size",
            "pairs",
            "cold",
            "cold",
            "warm",
            "warm",
            "steady",
            "steady",
            "goal");
    context
        .out()
        .printf(
            format, "", "(B)", "", "median", "max", "median", "max", "median", "p99", "of warm");
    context
        .out()
        .printf(format, "", "", "", "(us)", "(us)", "(us)", "(us)", "(us)", "(us)", "(us)");
    for (FirstCall.Summary s : summaries) {
      context
          .out()
          .printf(
              Locale.ROOT,
              " %-10s %6d %6d %9.2f %9.2f %9.2f %9.2f %9.2f %9.2f %9.2f%n",
              s.operation().label(),
              FirstCall.BYTES,
              s.pairs(),
              s.coldMedian(),
              s.coldMost(),
              s.warmMedian(),
              s.warmMost(),
              s.steadyMedian(),
              s.steadyP99(),
              s.goal());
    }
  }
}
