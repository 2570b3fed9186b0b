package io.nccl4j.cli;

import io.nccl4j.Backend;
import io.nccl4j.Device;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.Launch;
import io.nccl4j.NcclOptions;
import io.nccl4j.bench.options.Average;
import io.nccl4j.bench.options.Blocking;
import io.nccl4j.bench.options.Method;
import io.nccl4j.bench.options.Options;
import io.nccl4j.bench.options.Setup;
import io.nccl4j.bench.output.JsonWriter;
import io.nccl4j.bench.output.TextWriter;
import io.nccl4j.bench.output.TrafficSummary;
import io.nccl4j.bench.program.Program;
import io.nccl4j.bench.result.RunListener;
import io.nccl4j.bench.result.RunResult;
import io.nccl4j.bench.run.Bench;
import io.nccl4j.bench.run.RankRange;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Clock;
import java.time.LocalDateTime;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParameterException;
import picocli.CommandLine.Spec;

/** A command that measures a program; options and defaults are those of nccl-tests. */
@Command(
    versionProvider = Version.class,
    usageHelpWidth = 100,
    sortOptions = false,
    footer = {
      "",
      "Ranks are procs x nthreads x ngpus. Sizes are bytes, with K, M or G for 2^10, 2^20, 2^30.",
      "Times are microseconds, bandwidths GB/s with 1 GB = 10^9 bytes.",
      "Before the first size of each type and op, the compilers are warmed up untimed, for at most",
      "3 s (0.5 s for each further type or op) and one operation a size.",
      "",
      "Processes that torchrun, srun or mpirun started form one run; so do others if each has:",
      "  NCCL4J_RANK            number of the process's first rank",
      "  NCCL4J_NRANKS          ranks of all processes",
      "  NCCL4J_UNIQUE_ID       the same token in each, or",
      "  NCCL4J_UNIQUE_ID_FILE  a path where rank 0 writes one and removes it when all have it",
      "",
      "Exit code: 0 no checked element is wrong, 1 internal error, 2 bad option, 3 failure,",
      "4 timeout, 7 wrong data."
    })
final class BenchCommand implements Callable<Integer> {
  private final Context context;
  private final Program program;

  @Spec private CommandSpec spec;

  @Option(
      names = "--procs",
      paramLabel = "N",
      defaultValue = "1",
      description = "Processes, started here; default ${DEFAULT-VALUE}.")
  private int procs;

  @Option(
      names = {"-t", "--nthreads"},
      paramLabel = "N",
      defaultValue = "1",
      description = "Threads of each process; default ${DEFAULT-VALUE}.")
  private int threads;

  @Option(
      names = {"-g", "--ngpus"},
      paramLabel = "N",
      defaultValue = "1",
      description = "Ranks that each thread drives; default ${DEFAULT-VALUE}.")
  private int gpus;

  @Option(
      names = {"-b", "--minbytes"},
      paramLabel = "SIZE",
      defaultValue = "32M",
      converter = SizeConverter.class,
      description = "First size; default ${DEFAULT-VALUE}.")
  private long minBytes;

  @Option(
      names = {"-e", "--maxbytes"},
      paramLabel = "SIZE",
      defaultValue = "32M",
      converter = SizeConverter.class,
      description = "Last size; default ${DEFAULT-VALUE}.")
  private long maxBytes;

  @Option(
      names = {"-i", "--stepbytes"},
      paramLabel = "SIZE",
      defaultValue = "1M",
      converter = SizeConverter.class,
      description = "Difference between sizes; default ${DEFAULT-VALUE}.")
  private long stepBytes;

  @Option(
      names = {"-f", "--stepfactor"},
      paramLabel = "N",
      defaultValue = "1",
      description = "Ratio of sizes, instead of -i if above 1; default ${DEFAULT-VALUE}.")
  private int stepFactor;

  @Option(
      names = {"-n", "--iters"},
      paramLabel = "N",
      defaultValue = "20",
      description = "Timed operations of each size and placement; default ${DEFAULT-VALUE}.")
  private int iterations;

  @Option(
      names = {"-w", "--warmup_iters"},
      paramLabel = "N",
      defaultValue = "1",
      description = "Untimed operations of each size before the first; default ${DEFAULT-VALUE}.")
  private int warmup;

  @Option(
      names = {"-m", "--agg_iters"},
      paramLabel = "N",
      defaultValue = "1",
      description = "Operations that each iteration issues as one group; default ${DEFAULT-VALUE}.")
  private int aggregated;

  @Option(
      names = {"-N", "--run_cycles"},
      paramLabel = "N",
      defaultValue = "1",
      description = "How often all sizes are measured, 0 without end; default ${DEFAULT-VALUE}.")
  private int cycles;

  @Option(
      names = {"-p", "--parallel_init"},
      paramLabel = "0|1",
      defaultValue = "0",
      description = "Whether each thread joins with its own ranks; default ${DEFAULT-VALUE}.")
  private int parallelInit;

  @Option(
      names = {"-c", "--check"},
      paramLabel = "N",
      defaultValue = "1",
      description =
          "Verifications of each size and placement, 0 for none; default ${DEFAULT-VALUE}.")
  private int check;

  @Option(
      names = {"-o", "--op"},
      paramLabel = "OP",
      defaultValue = "sum",
      description = "Reduction: sum, prod, min, max, avg, mulsum or all; default ${DEFAULT-VALUE}.")
  private String op;

  @Option(
      names = {"-d", "--datatype"},
      paramLabel = "TYPE",
      defaultValue = "float",
      description = {
        "Element type: int8, uint8, int32, uint32, int64, uint64, half, float, double, bfloat16,",
        "f8e4m3, f8e5m2 or all; default ${DEFAULT-VALUE}."
      })
  private String type;

  @Option(
      names = {"-r", "--root"},
      paramLabel = "RANK",
      defaultValue = "0",
      description =
          "Root, where there is one; -1 or all for all in turn; default ${DEFAULT-VALUE}.")
  private String root;

  @Option(
      names = {"-z", "--blocking"},
      paramLabel = "0..3",
      defaultValue = "0",
      description = {
        "After each operation: 0 go on; 1 wait for it and for all ranks; 2 wait for it;",
        "3 wait for it and, not timed, for all ranks; default ${DEFAULT-VALUE}."
      })
  private int blocking;

  @Option(
      names = {"-y", "--stream_null"},
      paramLabel = "0|1",
      defaultValue = "0",
      description = "Whether to use CUDA's default stream; default ${DEFAULT-VALUE}.")
  private int nullStream;

  @Option(
      names = {"-T", "--timeout"},
      paramLabel = "SECONDS",
      defaultValue = "0",
      description =
          "After which whoever waits gives up, 0 for the settings' deadlines; default"
              + " ${DEFAULT-VALUE}.")
  private int timeout;

  @Option(
      names = {"-G", "--cudagraph"},
      paramLabel = "N",
      defaultValue = "0",
      description =
          "Capture all iterations as a graph and launch it so often; default ${DEFAULT-VALUE}.")
  private int graphLaunches;

  @Option(
      names = {"-C", "--report_cputime"},
      paramLabel = "0|1",
      defaultValue = "0",
      description = "Whether to show the time that issuing takes; default ${DEFAULT-VALUE}.")
  private int cpuTime;

  @Option(
      names = {"-S", "--report_timestamps"},
      paramLabel = "0|1",
      defaultValue = "0",
      description = "Whether lines end with a time stamp; default ${DEFAULT-VALUE}.")
  private int timestamps;

  @Option(
      names = "--no-rotate",
      description =
          "Use the same part of the buffers in each iteration, which caches may hold; by default"
              + " each iteration uses another part.")
  private boolean fixed;

  @Option(
      names = "--no-progress",
      description = "No progress bar; there is one on a terminal, except with --procs.")
  private boolean noProgress;

  @Option(
      names = {"-J", "--output_file"},
      paramLabel = "FILE",
      description = "Write JSON, too; if FILE exists, to FILE.0, FILE.1 and so on.")
  private @Nullable Path output;

  @Option(
      names = {"-a", "--average"},
      paramLabel = "0..3",
      defaultValue = "1",
      description =
          "Which of the ranks' times counts: 0 rank 0's, 1 the mean, 2 the shortest, 3 the longest;"
              + " default ${DEFAULT-VALUE}.")
  private int average;

  @Option(
      names = {"-R", "--local_register"},
      paramLabel = "0..2",
      defaultValue = "0",
      description =
          "Registration of the buffers with NCCL: 1 each rank's, 2 as symmetric windows; default"
              + " ${DEFAULT-VALUE}.")
  private int registration;

  @Option(
      names = {"-x", "--cta_policy"},
      paramLabel = "0..2",
      description =
          "What NCCL saves CTAs for: 0 nothing, 1 efficiency, 2 none at all where it can; NCCL's by"
              + " default.")
  private @Nullable Integer ctaPolicy;

  @Option(
      names = {"-D", "--device_implementation"},
      paramLabel = "N",
      defaultValue = "0",
      description =
          "Not supported but for 0: kernels of nccl-tests' own; default ${DEFAULT-VALUE}.")
  private int deviceImplementation;

  @Option(
      names = {"-V", "--device_cta_count"},
      paramLabel = "N",
      description = "Not supported: CTAs of such kernels.")
  private @Nullable Integer deviceCtas;

  @Option(
      names = {"-M", "--memory"},
      paramLabel = "0|1",
      defaultValue = "0",
      description = "Whether to report the memory that was taken; default ${DEFAULT-VALUE}.")
  private int memory;

  @Option(
      names = {"-u", "--unalign"},
      paramLabel = "N",
      defaultValue = "0",
      description =
          "Index of the first element that is used of the buffers; default ${DEFAULT-VALUE}.")
  private int unaligned;

  @Option(
      names = {"-I", "--per_iter_timing"},
      paramLabel = "0|1",
      defaultValue = "0",
      description = "Whether to time each iteration, too; default ${DEFAULT-VALUE}.")
  private int perIteration;

  @Option(
      names = {"-K", "--per_iter_skip"},
      paramLabel = "N",
      defaultValue = "0",
      description = "Iterations that the statistics of -I leave out; default ${DEFAULT-VALUE}.")
  private int skipped;

  @Option(
      names = "--backend",
      paramLabel = "NAME",
      defaultValue = "auto",
      description =
          "auto, host or cuda; auto takes GPUs if they are usable; default ${DEFAULT-VALUE}.")
  private String backend;

  /** A command that measures {@code program}. */
  BenchCommand(Context context, Program program) {
    this.context = context;
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
      ranks = RankEnvironment.of(context.environment(), options, procs);
      configured = program.with(context.environment());
      configured.check(options, ranks.nranks());
    } catch (InvalidArgumentException e) {
      throw new ParameterException(spec.commandLine(), e.getMessage(), e);
    }
    if (ranks.isParent()) {
      return new RankProcesses(context, options, procs).runAgain(spec);
    }
    if (ranks.isChild()) {
      ParentWatch.start();
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
    if (deviceImplementation != 0 || deviceCtas != null) {
      throw new InvalidArgumentException(
          "-D and -V, kernels of nccl-tests' own, are not supported", "leave them away");
    }
    if (output != null && !Files.isWritable(output.toAbsolutePath().getParent())) {
      throw new InvalidArgumentException(
          "cannot create " + output, "name a file in a folder that exists and is writable");
    }
    return Options.builder()
        .threads(threads)
        .gpus(gpus)
        .minBytes(minBytes)
        .maxBytes(maxBytes)
        .stepBytes(stepBytes)
        .stepFactor(stepFactor)
        .iterations(iterations)
        .warmup(warmup)
        .check(check)
        .ops(Options.ops(op))
        .types(Options.types(type))
        .root(root())
        .blocking(Blocking.ofNumber(blocking))
        .timestamps(yes("report_timestamps", timestamps))
        .rotate(!fixed)
        .output(output)
        .backend(Backend.ofLabel(backend))
        .setup(setup().with(context.environment()))
        .method(method().with(context.environment()))
        .build();
  }

  private Setup setup() {
    return new Setup(
        yes("parallel_init", parallelInit),
        yes("stream_null", nullStream),
        timeout,
        Setup.Registration.values()[upTo("local_register", registration, 2)],
        ctaPolicy == null
            ? null
            : NcclOptions.CtaPolicy.values()[upTo("cta_policy", ctaPolicy, 2)]);
  }

  private Method method() {
    return new Method(
        aggregated,
        cycles,
        graphLaunches,
        Average.ofNumber(average),
        yes("report_cputime", cpuTime),
        yes("per_iter_timing", perIteration),
        skipped,
        unaligned,
        yes("memory", memory),
        0,
        null);
  }

  private static boolean yes(String name, int value) {
    return upTo(name, value, 1) == 1;
  }

  private static int upTo(String name, int value, int most) {
    if (value < 0 || value > most) {
      throw new InvalidArgumentException(
          name + " is " + value, most == 1 ? "use 0 or 1" : "use 0 to " + most);
    }
    return value;
  }

  private int root() {
    try {
      return root.equals("all") ? -1 : Integer.parseInt(root);
    } catch (NumberFormatException e) {
      throw (InvalidArgumentException)
          new InvalidArgumentException("root is '" + root + "'", "use a rank, or all").causedBy(e);
    }
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
