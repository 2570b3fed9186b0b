package io.nccl4j.cli;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.Device;
import io.nccl4j.Launch;
import io.nccl4j.Provider;
import io.nccl4j.bench.options.Options;
import io.nccl4j.bench.run.RankRange;
import io.nccl4j.bench.selftest.FifoLeak;
import io.nccl4j.bench.selftest.SelfTest;
import io.nccl4j.cli.options.OptionRange;
import io.nccl4j.cli.process.RankEnvironment;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;

/** {@code nccl4j selftest fifo-leak}. */
@Command(
    name = "fifo-leak",
    description =
        "Shows that captured operations take no room from plain ones: two allReduces of 100,000"
            + " bfloat16, one captured, then 100,000 plain ones of 49,000.",
    footer = {
      "",
      "Exit code: 0 nothing was lost, 1 internal error, 2 bad option, 3 failure, 4 timeout, 7 room"
          + " or",
      "memory was lost, or data are wrong."
    })
final class FifoLeakCommand extends Subcommand {
  private static final int FEW = 2;
  private static final int MANY = 8;
  private static final int MANY_DIVISOR = 20;

  @Option(
      names = "--backend",
      paramLabel = "NAME",
      defaultValue = "host",
      description = "host or cuda; default ${DEFAULT-VALUE}.")
  private String backend;

  @Option(
      names = "--procs",
      paramLabel = "N",
      defaultValue = "1",
      description =
          "Processes of one rank each; with 1, the ranks are two and then eight threads of this"
              + " process, or as many as there are GPUs; default ${DEFAULT-VALUE}.")
  private int procs;

  @Option(
      names = {"-n", "--iters"},
      paramLabel = "N",
      defaultValue = "100000",
      description =
          "Plain operations after the captured one; a twentieth of that with more than two ranks;"
              + " default ${DEFAULT-VALUE}.")
  private long iterations;

  /** The command. */
  FifoLeakCommand(Context context) {
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
              OptionRange.positive("iters", iterations);
              return RankEnvironment.of(context.environment(), options, procs);
            });
    if (ranks.isParent()) {
      return new ProcessRun(SharedGpus.allowedIn(context, named), options, procs)
          .withVariables(rank -> SharedGpus.ofProcess(named, rank))
          .runAgain(spec);
    }
    RankRange range = ranks.range();
    if (range.id() != null) {
      return asProcess(options, range, ranks.launch());
    }
    heading();
    List<FifoLeak.Result> results = new ArrayList<>();
    for (int nranks : threads(named)) {
      List<FifoLeak.Result> some =
          FifoLeak.onThreads(options.backend(), nranks, iterations(nranks), this::progress);
      some.forEach(result -> row(result, "threads"));
      results.addAll(some);
    }
    return verdict(results);
  }

  /** Of thread ranks each GPU has one. */
  private static int[] threads(Backend backend) {
    int most = backend == Backend.CUDA ? Device.all(backend).size() : MANY;
    return IntStream.of(Math.min(FEW, most), Math.min(MANY, most)).distinct().toArray();
  }

  private int asProcess(Options options, RankRange range, @Nullable Launch launch) {
    Device device = SelfTest.device(options.backend(), range.firstRank());
    List<FifoLeak.Result> results;
    try (Communicator communicator = range.join(device, FifoLeak.config())) {
      if (launch != null) {
        launch.close();
      }
      results = FifoLeak.onRank(communicator, iterations(range.nranks()), this::progress);
    }
    if (range.reports()) {
      heading();
      results.forEach(result -> row(result, "processes"));
      return verdict(results);
    }
    return exitCode(results);
  }

  private long iterations(int nranks) {
    return nranks > FEW ? Math.max(1, iterations / MANY_DIVISOR) : iterations;
  }

  private void progress(FifoLeak.Scenario scenario, int ranks, long done, long of, double seconds) {
    context
        .err()
        .printf(
            Locale.ROOT,
            "nccl4j: fifo-leak, %d ranks, %s: %d of %d iterations, %.1f s%n",
            ranks,
            scenario.label(),
            done,
            of,
            seconds);
  }

  private void heading() {
    context.out().printf("# nccl4j %s selftest fifo-leak, %s%n", Provider.get().version(), backend);
    context
        .out()
        .printf(
            "#%-15s %5s %-9s %10s %8s %7s %8s %8s %6s %8s %8s %8s %6s%n",
            "case",
            "ranks",
            "as",
            "operations",
            "launches",
            "time",
            "FIFO",
            "highest",
            "full",
            "occupied",
            "heap",
            "shared",
            "#wrong");
    context
        .out()
        .printf(
            "#%-15s %5s %-9s %10s %8s %7s %8s %8s %6s %8s %8s %8s %6s%n",
            "", "", "", "", "", "(s)", "(B)", "(B)", "times", "(B)", "(+KiB)", "(+KiB)", "");
  }

  private void row(FifoLeak.Result result, String as) {
    context
        .out()
        .printf(
            Locale.ROOT,
            " %-15s %5d %-9s %10d %8d %7.2f %8d %8d %6d %8d %8d %8d %6d%n",
            result.scenario().label(),
            result.ranks(),
            as,
            result.operations(),
            result.launches(),
            result.seconds(),
            result.fifoBytes(),
            result.highWaterBytes(),
            result.fullTimes(),
            result.occupiedBytes(),
            result.heapGrowth() >> 10,
            result.sharedGrowth() >> 10,
            result.wrong());
  }

  private int verdict(List<FifoLeak.Result> results) {
    int code = exitCode(results);
    context.out().println("# " + (code == 0 ? "OK: nothing is lost" : "FAILED"));
    return code;
  }

  private static int exitCode(List<FifoLeak.Result> results) {
    boolean passed = results.stream().allMatch(FifoLeak.Result::passed);
    return (passed ? ExitCode.OK : ExitCode.WRONG_DATA).number();
  }
}
