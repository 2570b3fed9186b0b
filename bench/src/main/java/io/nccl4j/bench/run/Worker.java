package io.nccl4j.bench.run;

import io.nccl4j.Backend;
import io.nccl4j.BackendInfo;
import io.nccl4j.CommunicatorHosts;
import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import io.nccl4j.bench.data.Block;
import io.nccl4j.bench.data.ContentKernels;
import io.nccl4j.bench.data.Contents;
import io.nccl4j.bench.data.TestData;
import io.nccl4j.bench.data.Wrong;
import io.nccl4j.bench.machine.CompilerThreads;
import io.nccl4j.bench.options.Blocking;
import io.nccl4j.bench.options.Method;
import io.nccl4j.bench.options.Options;
import io.nccl4j.bench.program.Case;
import io.nccl4j.bench.program.Program;
import io.nccl4j.bench.result.IterationTimes;
import io.nccl4j.bench.result.LineLatency;
import io.nccl4j.bench.result.Measurement;
import io.nccl4j.bench.result.MemoryPhases;
import io.nccl4j.bench.result.PredictedMemory;
import io.nccl4j.bench.result.RankInfo;
import io.nccl4j.bench.result.RunInfo;
import io.nccl4j.bench.result.RunListener;
import io.nccl4j.bench.result.RunResult;
import io.nccl4j.bench.result.SizeResult;
import java.time.Clock;
import java.time.LocalDateTime;
import java.util.ArrayList;
import java.util.List;
import java.util.OptionalDouble;
import java.util.OptionalLong;
import java.util.function.LongFunction;
import java.util.stream.IntStream;
import org.apache.commons.statistics.descriptive.Median;
import org.apache.logging.log4j.LogManager;
import org.jspecify.annotations.Nullable;

/**
 * The run as one thread sees it. All threads of the run go the same way, in step; the one that
 * drives rank 0 reports.
 */
final class Worker {
  // Data before the timing and of the first check; later checks count on.
  private static final long TIMING_SEED = 99;

  private static final int WARM_CALLS = 51;

  private final Program program;
  private final Options options;
  private final RankSet ranks;
  private final Crew crew;
  private final Method method;
  private final int nranks;
  private final int allRanks;
  private final Backend backend;
  private final @Nullable RunListener listener;
  private final Clock clock;
  private final Timing timing;
  private final SweepWarmUp warmUp;
  private final Rounds rounds;
  private final ContentKernels kernels = new ContentKernels();
  private OptionalDouble firstLine = OptionalDouble.empty();
  private OptionalDouble lastLine = OptionalDouble.empty();
  private long checks;

  /**
   * A thread's part of a run.
   *
   * @param listener hears of results; null on all threads but the one that drives rank 0
   * @param turns another run's and this one's; null if it takes none
   */
  Worker(
      Program program,
      Options options,
      RankSet ranks,
      Crew crew,
      @Nullable RunListener listener,
      Clock clock,
      @Nullable Turns turns) {
    this.program = program;
    this.options = options;
    this.ranks = ranks;
    this.crew = crew;
    this.method = options.method();
    this.allRanks = ranks.first().world().nranks();
    this.nranks = ranks.first().communicator().nranks();
    this.backend = ranks.first().device().backend();
    this.listener = listener;
    this.clock = clock;
    this.timing = new Timing(ranks, crew, method.aggregated());
    this.warmUp = new SweepWarmUp(options, ranks, crew, timing);
    this.rounds = new Rounds(options, ranks, crew, timing, turns);
  }

  /** Runs everything; what is measured of the collectives is the same on all threads. */
  RunResult run(String version, MemoryPhases.@Nullable Meter meter) {
    LocalDateTime start = LocalDateTime.now(clock);
    crew.barrier();
    if (meter != null) {
      meter.connected();
    }
    List<BackendInfo> found = listener == null ? List.of() : found();
    double cold = coldMicros();
    List<RankInfo> all = Roster.gather(ranks);
    CommunicatorHosts hosts = Roster.hosts(ranks.first().world(), all);
    RunInfo info = new RunInfo(program, options, backend, version, all, hosts, found, start);
    if (listener != null) {
      listener.planned(lines());
      listener.started(info);
    }
    List<SizeResult> results = new ArrayList<>();
    for (DataType type : options.types()) {
      for (ReduceOp.Kind op : ops()) {
        TestData data = new TestData(type, op, nranks, backend);
        for (int root : roots()) {
          runSizes(type, op, root, data, results);
        }
      }
    }
    double warm = warmMicros();
    PredictedMemory predicted = predictedMemory(hosts);
    RunResult result =
        new RunResult(
            info,
            results,
            cold,
            warm,
            new LineLatency(firstLine, lastLine),
            listener == null ? null : ranks.first().memory(),
            meter == null ? null : meter.finished(options.localRanks() * bufferBytes()),
            predicted,
            LocalDateTime.now(clock));
    if (listener != null) {
      listener.finished(result);
    }
    // Nobody leaves, and is missed, before the report is written.
    crew.barrier();
    // Not after a failure: unloading could wait for a device that is stuck.
    kernels.close();
    return result;
  }

  private @Nullable PredictedMemory predictedMemory(CommunicatorHosts hosts) {
    return method.memory() && backend == Backend.CUDA
        ? new MemoryCheck(program, options, roots(), nranks, hosts).compare(ranks, crew)
        : null;
  }

  private long bufferBytes() {
    return ranks.first().memory().bufferBytes();
  }

  private List<BackendInfo> found() {
    BackendInfo host = Backend.HOST.info();
    return backend == Backend.HOST ? List.of(host) : List.of(host, backend.info());
  }

  /** Measured by the thread that reports; the others wait at the next barrier meanwhile. */
  private OptionalDouble lineNanos() {
    return listener == null || !options.isCareful()
        ? OptionalDouble.empty()
        : LineProbe.nanos(nranks);
  }

  /** Since the last call. */
  private LineLatency line() {
    OptionalDouble before = lastLine;
    lastLine = lineNanos();
    return new LineLatency(before, lastLine);
  }

  private List<ReduceOp.Kind> ops() {
    return program.reduces() ? options.ops() : List.of(ReduceOp.Kind.SUM);
  }

  private long lines() {
    return (long) options.types().size()
        * ops().size()
        * roots().length
        * options.sweep().sizes().count()
        * method.cycles();
  }

  private int[] roots() {
    if (!program.rooted()) {
      return new int[] {-1};
    }
    return options.root() >= 0 ? new int[] {options.root()} : IntStream.range(0, nranks).toArray();
  }

  /** Time of the first operation of this program in this process, before anything else ran. */
  private double coldMicros() {
    return firstMicros();
  }

  /** The same operation, measured in the same way, when everything has run: the median of some. */
  private double warmMicros() {
    double[] times = new double[WARM_CALLS];
    for (int i = 0; i < WARM_CALLS; i++) {
      times[i] = firstMicros();
    }
    return Median.withDefaults().evaluate(times);
  }

  /** An operation of the first size and kind, from one barrier to its end on the slowest rank. */
  private double firstMicros() {
    long bytes = options.sweep().minBytes();
    ranks.prepare(
        Case.of(program, options.types().getFirst(), ops().getFirst(), roots()[0], nranks, bytes),
        false,
        1);
    return crew.max(timing.nanos(1, Blocking.NONE)) / 1e3 / method.aggregated();
  }

  private void runSizes(
      DataType type, ReduceOp.Kind op, int root, TestData data, List<SizeResult> results) {
    Contents contents = new Contents(type, kernels);
    LongFunction<Case> cases = bytes -> Case.of(program, type, op, root, nranks, bytes);
    warmUp.run(
        cases,
        () -> {
          if (listener != null) {
            LineProbe.warmUp();
          }
          // Without turns: the other run may be of a version that has no rehearsal.
          Rounds unlisted = new Rounds(options, ranks, crew, timing, null);
          measured(cases.apply(options.sweep().minBytes()), data, contents, unlisted);
        });
    lastLine = lineNanos();
    firstLine = firstLine.isPresent() ? firstLine : lastLine;
    for (long cycle = 0; cycle < method.cycles() || method.cycles() == 0; cycle++) {
      options
          .sweep()
          .sizes()
          .forEach(
              bytes -> {
                SizeResult result = measured(cases.apply(bytes), data, contents, rounds);
                if (method.cycles() > 0) {
                  results.add(result);
                }
                if (listener != null) {
                  listener.measured(result);
                }
              });
    }
  }

  private SizeResult measured(Case size, TestData data, Contents contents, Rounds timed) {
    Measurement outOfPlace = measure(size, data, contents, timed, false);
    Measurement inPlace = program.inPlace() ? measure(size, data, contents, timed, true) : null;
    return new SizeResult(
        size.size(),
        size.shape().count(),
        size.type().label(),
        program.reduces() ? size.op().label() : "none",
        size.root(),
        outOfPlace,
        inPlace,
        options.iterations(),
        line(),
        LocalDateTime.now(clock));
  }

  private Measurement measure(
      Case size, TestData data, Contents contents, Rounds timed, boolean inPlace) {
    int slices = options.iterations() * method.aggregated();
    ranks.prepare(size, inPlace, options.rotate() ? slices : 1);
    for (LocalRank rank : ranks) {
      contents.write(rank.send(0), program.sent(size, data, rank.rank(), TIMING_SEED));
    }
    timing.nanos(1, options.blocking());
    timed.run();
    double micros = timed.medianMicros();
    double algBw = size.algorithmBandwidth(micros / 1e6);
    IterationTimes iterations = method.perIteration() ? eachIteration() : null;
    OptionalLong wrong =
        options.check() > 0
            ? OptionalLong.of(countWrong(size, data, contents, inPlace))
            : OptionalLong.empty();
    return new Measurement(
        micros,
        algBw,
        size.busBandwidth(algBw),
        wrong,
        timed.micros(),
        timed.medianIssueMicros(),
        iterations);
  }

  /** Runs all iterations once more, with a mark between them. */
  private IterationTimes eachIteration() {
    int count = options.iterations();
    int threads = allRanks / ranks.size();
    int thread = ranks.first().world().rank() / ranks.size();
    double[] all = new double[threads * count];
    if (options.isCareful()) {
      // Marks take their time the first time.
      timing.eachMicros(count, options.blocking());
      CompilerThreads.awaitIdle();
    }
    double[] own = timing.eachMicros(count, options.blocking());
    System.arraycopy(own, 0, all, thread * count, count);
    double[] sums = crew.sums(all);
    List<List<Double>> perProcess = new ArrayList<>();
    for (int first = 0; first < threads; first += options.threads()) {
      int from = first;
      perProcess.add(IntStream.range(0, count).mapToObj(i -> longest(sums, from, i)).toList());
    }
    return IterationTimes.of(method.skipped(), perProcess);
  }

  /** The longest of a process's threads, the first of which is given, in an iteration. */
  private double longest(double[] times, int firstThread, int iteration) {
    return IntStream.range(firstThread, firstThread + options.threads())
        .mapToDouble(thread -> times[thread * options.iterations() + iteration])
        .max()
        .orElseThrow();
  }

  /** Repeats one operation on fresh data until a check fails, as nccl-tests does. */
  private long countWrong(Case size, TestData data, Contents contents, boolean inPlace) {
    for (int check = 0; check < options.check(); check++) {
      long seed = ++checks;
      for (LocalRank rank : ranks) {
        contents.poison(rank.recv(0), expected(size, data, rank, seed, inPlace));
        contents.write(rank.send(0), program.sent(size, data, rank.rank(), seed));
      }
      crew.barrier();
      if (method.graphLaunches() > 0) {
        ranks.captured(() -> ranks.launch(0), 1);
      } else {
        ranks.launch(0);
        ranks.synchronize();
      }
      long wrong = 0;
      for (LocalRank rank : ranks) {
        Wrong found = contents.check(rank.recv(0), expected(size, data, rank, seed, inPlace));
        if (found.count() > 0) {
          // Asked for here: without an error nobody has to wait for the logger to be set up.
          LogManager.getLogger(Worker.class).warn("{} of rank {}: {}", program, rank.rank(), found);
        }
        wrong += found.count();
      }
      long all = (long) crew.sum(wrong);
      if (all > 0) {
        return all;
      }
    }
    return 0;
  }

  private List<Block> expected(
      Case size, TestData data, LocalRank rank, long seed, boolean inPlace) {
    return inPlace
        ? program.expectedInPlace(size, data, rank.rank(), seed)
        : program.expected(size, data, rank.rank(), seed);
  }
}
