package io.nccl4j.cli;

import io.nccl4j.Backend;
import io.nccl4j.Device;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.Launch;
import io.nccl4j.bench.options.Options;
import io.nccl4j.bench.output.JsonWriter;
import io.nccl4j.bench.output.TextWriter;
import io.nccl4j.bench.output.TrafficSummary;
import io.nccl4j.bench.program.Program;
import io.nccl4j.bench.result.RunListener;
import io.nccl4j.bench.result.RunResult;
import io.nccl4j.bench.run.Bench;
import io.nccl4j.bench.run.RankRange;
import io.nccl4j.cli.options.MethodOptions;
import io.nccl4j.cli.options.RankOptions;
import io.nccl4j.cli.options.SweepOptions;
import io.nccl4j.cli.process.LaunchCloser;
import io.nccl4j.cli.process.RankEnvironment;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Clock;
import java.time.LocalDateTime;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParameterException;

/** A command that measures a program; options and defaults are those of nccl-tests. */
@Command(
    footer = {
      "",
      "There are procs x nthreads x ngpus ranks. Sizes are in bytes; K, M and G stand for 2^10,"
          + " 2^20",
      "and 2^30. Times are in microseconds, bandwidths in GB/s with 1 GB = 10^9 bytes.",
      "Each type and op starts with an untimed warm-up, which lets the compilers finish. It ends",
      "when operations get no faster, or after 8 s for the first (8 s per process or per eight",
      "ranks, but at most 32 s, and 32 s over several hosts) and 0.5 s for each later one.",
      "",
      "Processes started by torchrun, srun or mpirun form one run. So do others, if each sets:",
      "  NCCL4J_RANK            the process's first rank",
      "  NCCL4J_NRANKS          number of ranks in all processes",
      "  NCCL4J_JOB             on one machine, any name, the same in each, or",
      "  NCCL4J_UNIQUE_ID       the same token in each, or",
      "  NCCL4J_UNIQUE_ID_FILE  a file to which rank 0 writes it until all have read it, or",
      "  NCCL4J_RENDEZVOUS      tcp://HOST:PORT of rank 0, and the same NCCL4J_SECRET in each: on"
          + " any",
      "                         machines",
      "",
      "Exit code: 0 no checked element is wrong, 1 internal error, 2 bad option, 3 failure,",
      "4 timeout, 7 wrong data."
    })
final class BenchCommand extends Subcommand {
  private final Program program;

  @Mixin private final RankOptions rankOptions = new RankOptions();
  @Mixin private final SweepOptions sweepOptions = new SweepOptions();
  @Mixin private final MethodOptions methodOptions = new MethodOptions();

  @Option(
      names = "--no-progress",
      order = 24,
      description =
          "Show no progress bar; by default there is one on a terminal, except with --procs.")
  private boolean noProgress;

  @Option(
      names = {"-J", "--output_file"},
      order = 25,
      paramLabel = "FILE",
      description = "Also write JSON, to FILE or, if that exists, to FILE.0, FILE.1 and so on.")
  private @Nullable Path output;

  /** A command that measures {@code program}. */
  BenchCommand(Context context, Program program) {
    super(context);
    this.program = program;
  }

  /** The command line of {@code program}, with its name and that of nccl-tests. */
  static CommandLine of(Context context, Program program) {
    CommandLine line = new CommandLine(new BenchCommand(context, program));
    CommandSpec command = line.getCommandSpec();
    command.name(program.command()).aliases(program.testsName());
    String summary = program.summary();
    command
        .usageMessage()
        .description("Measures and verifies " + program.command() + ": " + summary + ".");
    return line;
  }

  @Override
  public Integer call() throws InterruptedException {
    Options options;
    RankEnvironment ranks;
    Program configured;
    try {
      options = options();
      ranks = RankEnvironment.of(context.environment(), options, rankOptions.procs());
      configured = program.with(context.environment());
      configured.check(options, ranks.nranks());
    } catch (InvalidArgumentException e) {
      throw new ParameterException(spec.commandLine(), e.getMessage(), e);
    }
    if (ranks.isParent()) {
      return new ProcessRun(context, options, rankOptions.procs()).runAgain(spec);
    }
    if (ranks.isChild()) {
      noProgress = true;
    }
    RankRange range = ranks.range();
    Launch launch = ranks.launch();
    if (launch == null) {
      return measure(configured, options, range, new ArrayList<>());
    }
    try (launch) {
      List<RunListener> listeners = new ArrayList<>(List.of(new LaunchCloser(launch)));
      return measure(configured, options, range, listeners);
    }
  }

  private Options options() {
    if (output != null && !Files.isWritable(output.toAbsolutePath().getParent())) {
      throw new InvalidArgumentException(
          "cannot create " + output, "name a file in a folder that exists and is writable");
    }
    Options.Builder builder = Options.builder().output(output);
    rankOptions.addTo(builder, context.environment());
    sweepOptions.addTo(builder);
    methodOptions.addTo(builder, context.environment());
    return builder.build();
  }

  private int measure(
      Program configured, Options options, RankRange range, List<RunListener> listeners)
      throws InterruptedException {
    Clock clock = Clock.systemDefaultZone();
    TextWriter text = new TextWriter(context.out());
    listeners.add(text);
    TrafficSummary.of(configured, context.out()).ifPresent(listeners::add);
    Path file = options.output();
    if (file == null || !range.reports()) {
      return run(configured, options, range, listeners, clock);
    }
    List<String> arguments = spec.root().commandLine().getParseResult().originalArgs();
    try (JsonWriter json =
        JsonWriter.create(file, arguments, context.environment(), LocalDateTime.now(clock))) {
      listeners.add(json);
      text.jsonGoesTo(json.file().toString());
      try {
        return run(configured, options, range, listeners, clock);
      } catch (RuntimeException e) {
        json.failed(String.valueOf(e.getMessage()), LocalDateTime.now(clock));
        throw e;
      }
    }
  }

  private int run(
      Program configured,
      Options options,
      RankRange range,
      List<RunListener> listeners,
      Clock clock)
      throws InterruptedException {
    RunListener all = RunListener.all(listeners);
    if (range.reports()) {
      Backend used = Device.get(options.backend(), 0).backend();
      options.setup().withoutEffect(used).forEach(text -> context.err().println("nccl4j: " + text));
    }
    boolean shows = !noProgress && range.reports() && context.hasTerminal();
    try (ProgressLine bar = new ProgressLine(all, program.command(), context.err())) {
      RunResult result = new Bench(configured, options, range, shows ? bar : all, clock).run();
      return exitCode(result);
    }
  }

  private static int exitCode(RunResult result) {
    return (result.correct() && result.fastEnough() ? ExitCode.OK : ExitCode.WRONG_DATA).number();
  }
}
