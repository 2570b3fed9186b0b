package io.nccl4j.bench.run;

import io.nccl4j.Backend;
import io.nccl4j.ExecutableGraph;
import io.nccl4j.bench.Closing;
import io.nccl4j.bench.machine.CompilerThreads;
import io.nccl4j.bench.options.Method;
import io.nccl4j.bench.options.Options;
import java.util.ArrayList;
import java.util.List;
import java.util.function.IntToLongFunction;
import org.apache.commons.statistics.descriptive.Median;
import org.jspecify.annotations.Nullable;

/**
 * The rounds in which the timed iterations of one measurement run: how many operations each has,
 * how often they are repeated, and which of them count.
 */
final class Rounds {
  private static final double ENOUGH_NANOS = 20e6;
  private static final int MANY_BATCHES = 25;

  // What holds a machine up for a few milliseconds must not reach the median: rounds are spread.
  private static final double SPREAD_NANOS = 50e6;
  private static final int MOST_BATCHES = 200;
  private static final double LONG_NANOS = 200e6;
  private static final int FEW_BATCHES = 15;
  private static final double ROUND_NANOS = 10e6;
  private static final int ESTIMATES = 3;
  private static final int ROUNDS_IN_TURNS = 30;
  private static final int MOST_IN_A_TURN = 1 << 16;

  /** Of a round in turns so much goes before it untimed: caches hold the other run's data. */
  private static final double LEAD_IN = 0.5;

  private static final int MOST_DISCARDED = 25;

  private final Options options;
  private final RankSet ranks;
  private final Crew crew;
  private final Method method;
  private final Timing timing;
  private final @Nullable Turns turns;
  private final int allRanks;
  private final Backend backend;
  private List<Double> micros = List.of();
  private final List<Double> issueMicros = new ArrayList<>();

  // Rounds of the present run that something disturbed.
  private int discarded;

  // Whether the ranks have slept since their last operation.
  private boolean rested;

  /**
   * The rounds of a thread's ranks.
   *
   * @param turns another run's and this one's; null if it takes none
   */
  Rounds(Options options, RankSet ranks, Crew crew, Timing timing, @Nullable Turns turns) {
    this.options = options;
    this.ranks = ranks;
    this.crew = crew;
    this.method = options.method();
    this.timing = timing;
    this.turns = turns;
    this.allRanks = ranks.first().world().nranks();
    this.backend = ranks.first().device().backend();
  }

  /** Times what the ranks have prepared. */
  void run() {
    issueMicros.clear();
    micros = method.graphLaunches() > 0 ? replayed() : plain();
  }

  /** The time of an operation in each round that counts. */
  List<Double> micros() {
    return micros;
  }

  /** The median of these times. */
  double medianMicros() {
    return median(micros);
  }

  /** How long issuing an operation took, likewise. */
  double medianIssueMicros() {
    return median(issueMicros);
  }

  private List<Double> plain() {
    int all = options.iterations();
    return times(
        options.isCareful() || turns != null ? operationsPerRound() : all,
        iterations -> timing.nanos(iterations, options.blocking()));
  }

  private List<Double> replayed() {
    int all = options.iterations();
    List<ExecutableGraph> graphs = ranks.capture(() -> timing.issue(all));
    try {
      return times(
          all,
          iterations ->
              timing.replayNanos(graphs, method.graphLaunches()) / method.graphLaunches());
    } finally {
      Closing.all(graphs);
    }
  }

  /**
   * How many operations to time at once: all iterations. On the host, where that is long, as few as
   * waiting for them does not matter, so that there are several times to tell noise from; a device
   * would run empty between so short rounds. In turns that holds for all sizes: a turn has to be
   * longer than what passing it takes. The fastest of some decides: one that was held up by
   * something else would not.
   */
  private int operationsPerRound() {
    if (backend != Backend.HOST && turns == null) {
      return options.iterations();
    }
    double one = Double.MAX_VALUE;
    for (int i = 0; i < ESTIMATES; i++) {
      one = Math.min(one, crew.max(timing.nanos(1, options.blocking())));
      if (turns == null && one * options.iterations() < 2 * ROUND_NANOS) {
        return options.iterations();
      }
    }
    int most = turns == null ? options.iterations() : MOST_IN_A_TURN;
    return (int) Math.clamp(Math.ceil(ROUND_NANOS / one), 1, most);
  }

  /**
   * Times all iterations, and again and again as long as that takes little; returns the times of an
   * operation in each round, in µs. Twenty operations of 0.2 µs are over before a processor has
   * noticed; one time slice lost to another thread would multiply the result. What ran while a
   * compiler did is run again.
   *
   * @param nanos runs iterations and says how long it took
   */
  private List<Double> times(int perRound, IntToLongFunction nanos) {
    if (options.isCareful()) {
      awaitCompilers();
    }
    discarded = 0;
    if (turns != null) {
      return timesInTurns(turns, perRound, nanos);
    }
    if (!options.isCareful()) {
      return List.of(round(perRound, nanos));
    }
    int least = Math.ceilDiv(options.iterations(), perRound);
    List<Double> times = new ArrayList<>();
    double total = 0;
    long start = System.nanoTime();
    while (times.size() < least
        || total < LONG_NANOS && times.size() < FEW_BATCHES
        || total < ENOUGH_NANOS
            && (times.size() < MANY_BATCHES || isTooShort(times.size(), start))) {
      // All ranks come to the same time, and so to the same decision.
      double micros = quietRound(perRound, nanos);
      times.add(micros);
      total += micros * 1e3 * perRound * method.aggregated();
    }
    return times;
  }

  /** Whether what disturbs the machine for a moment may have met all rounds. */
  private boolean isTooShort(int rounds, long start) {
    return rounds < MOST_BATCHES && crew.max(System.nanoTime() - start) < SPREAD_NANOS;
  }

  /** The same with the other run's rounds between. */
  private List<Double> timesInTurns(Turns turns, int perRound, IntToLongFunction nanos) {
    int before = (int) Math.ceil(LEAD_IN * perRound);
    List<Double> times = new ArrayList<>();
    while (times.size() < ROUNDS_IN_TURNS) {
      turns.pass(crew);
      long unused = nanos.applyAsLong(before);
      times.add(options.isCareful() ? quietRound(perRound, nanos) : round(perRound, nanos));
    }
    return times;
  }

  /** A round that no compiler disturbed, unless there are too many that one did. */
  private double quietRound(int perRound, IntToLongFunction nanos) {
    while (true) {
      leadIn(perRound);
      long before = CompilerThreads.compileMillis();
      double micros = round(perRound, nanos);
      boolean disturbed = CompilerThreads.anyRuns() || CompilerThreads.compileMillis() != before;
      if (discarded == MOST_DISCARDED || crew.max(disturbed ? 1 : 0) == 0) {
        return micros;
      }
      discarded++;
      issueMicros.removeLast();
      awaitCompilers();
    }
  }

  private void awaitCompilers() {
    CompilerThreads.awaitIdle();
    rested = true;
  }

  /**
   * As in nccl-tests an untimed operation goes before those that are timed. Where a round is one
   * operation, which then takes long, that of the round before it will do.
   */
  private void leadIn(int perRound) {
    if (perRound > 1 || rested) {
      timing.nanos(1, options.blocking());
      rested = false;
    }
  }

  /** Time of one operation of a round in µs, of the ranks as {@code -a} wants it. */
  private double round(int iterations, IntToLongFunction nanos) {
    double operations = 1e3 * iterations * method.aggregated();
    double micros = ofAllRanks(nanos.applyAsLong(iterations) / operations);
    int launches = Math.max(1, method.graphLaunches());
    issueMicros.add(ofAllRanks(timing.issueNanos() / operations / launches));
    return micros;
  }

  /** Each rank of this thread took as long as the thread. */
  private double ofAllRanks(double mine) {
    boolean hasRank0 = ranks.first().world().rank() == 0;
    return crew.average(method.average(), mine, ranks.size(), allRanks, hasRank0);
  }

  private static double median(List<Double> values) {
    return Median.withDefaults().evaluate(values.stream().mapToDouble(x -> x).toArray());
  }
}
