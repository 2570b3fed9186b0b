package io.nccl4j.bench.run;

import io.nccl4j.bench.machine.CompilerThreads;
import io.nccl4j.bench.options.Options;
import io.nccl4j.bench.program.Case;
import java.util.function.LongFunction;

/**
 * What runs untimed before the first size. First the just-in-time compilers get to work: operations
 * of each size are repeated until they get no faster, which nccl-tests, compiled ahead of time,
 * does not need. Then each size gets the warm-up operations of {@code -w}, a measurement is
 * rehearsed, and small sizes are repeated once more.
 *
 * <p>All ranks run the same number of operations, because they decide by times all of them know.
 */
final class SweepWarmUp {
  /** Time for the first combination of type and reduction, and for each later one. */
  private static final double FIRST_BUDGET = 8e9;

  /**
   * The first budget grows with the processes, whose compilers share the processors, and with the
   * ranks, since an operation waits for the slowest of them.
   */
  private static final int RANKS_PER_BUDGET = 8;

  /** Over several hosts, where there is far more code to compile, it is always that large. */
  private static final int MOST_BUDGETS = 4;

  private static final double LATER_BUDGET = 0.5e9;

  /** A size may take this part of the time that is left. */
  private static final int SHARES = 3;

  /** This part of the budget is kept for the second time that small sizes run. */
  private static final double SECOND_TIME = 0.25;

  private static final long SMALL_BYTES = 4 << 10;
  private static final double BATCH_NANOS = 5e6;
  private static final int MAX_BATCH = 1 << 16;

  /**
   * Interpreted operations take hundreds of microseconds, and the compilers count calls: a batch is
   * extended to this many operations, ...
   */
  private static final int SLOW_BATCH = 200;

  /** ... up to this time. */
  private static final double SLOW_BATCH_NANOS = 50e6;

  /**
   * More operations than a stream's queue holds, as soon as one takes less than so long: compiled
   * code that has never met a full queue would be thrown away later, when batches are long.
   */
  private static final int FILLING_BATCH = 1100;

  private static final double FILLING_NANOS = 60e3;

  /** Once batches do not get faster by this part for so many, ... */
  private static final double IMPROVEMENT = 0.03;

  private static final int SAME_BATCHES = 3;

  /** ... and the compilers finished nothing during so many, they have done what matters ... */
  private static final int QUIET_BATCHES = 3;

  /**
   * ... but up to this size, where the time is all code, the optimizing compiler must also have
   * seen enough operations.
   */
  private static final long MOST_CODE_BYTES = 64 << 10;

  private final Options options;
  private final RankSet ranks;
  private final Crew crew;
  private final Timing timing;
  private double budget;
  private boolean isRehearsed;

  /** Warms up {@code ranks}. */
  SweepWarmUp(Options options, RankSet ranks, Crew crew, Timing timing) {
    this.options = options;
    this.ranks = ranks;
    this.crew = crew;
    this.timing = timing;
    int nranks = ranks.first().world().nranks();
    int processes = nranks / (options.threads() * options.gpus());
    int budgets = Math.max(processes, nranks / RANKS_PER_BUDGET);
    boolean oneHost = ranks.first().world().hosts().map(h -> h.count() == 1).orElse(true);
    budget = FIRST_BUDGET * (oneHost ? Math.clamp(budgets, 1, MOST_BUDGETS) : MOST_BUDGETS);
  }

  /**
   * Runs all of it, or nothing with {@code -w 0}.
   *
   * @param cases tells what a size means
   * @param rehearsal measures the first size and drops the result; runs once, for the first cases
   */
  void run(LongFunction<Case> cases, Runnable rehearsal) {
    if (!options.isCareful()) {
      return;
    }
    long[] doublings = options.sweep().doublings().toArray();
    long[] sizes = sizesToCompile(doublings);
    double kept = budget * SECOND_TIME;
    double left = compileAll(sizes, cases, budget - kept);
    for (long size : doublings) {
      ranks.prepare(cases.apply(size), false, options.warmup());
      timing.nanos(options.warmup(), options.blocking());
    }
    if (!isRehearsed) {
      rehearsal.run();
      isRehearsed = true;
    }
    compileAgain(sizes, cases, left + kept);
    budget = LATER_BUDGET;
  }

  /** What is measured, or the doublings where these are fewer. */
  private long[] sizesToCompile(long[] doublings) {
    long[] measured = options.sweep().sizes().limit(doublings.length + 1L).toArray();
    return measured.length <= doublings.length ? measured : doublings;
  }

  /** Has all sizes compiled, in {@code most} nanoseconds at most; returns what is left of them. */
  private double compileAll(long[] sizes, LongFunction<Case> cases, double most) {
    double left = most;
    // Operations that go the same way, but many in a short time: what surrounds the loops over data
    // is compiled by then, and the loops are not interpreted for long.
    left -= compile(cases.apply(Math.min(sizes[0], SMALL_BYTES)), left / 2);
    int first = sizes[0] > SMALL_BYTES ? 0 : 1;
    for (int i = first; i < sizes.length && left > 0; i++) {
      // The first size that goes another way takes long: until its loops are compiled, each
      // operation takes a thousand times what it takes later. The next ones have less to do.
      left -= compile(cases.apply(sizes[i]), left / Math.min(sizes.length - i, SHARES));
    }
    return Math.max(left, 0);
  }

  /**
   * Repeats small sizes. Compiled code that takes a branch for the first time is thrown away:
   * because of the first operation that goes another way, of sizes in between, or of what surrounds
   * the timed operations.
   */
  private void compileAgain(long[] sizes, LongFunction<Case> cases, double most) {
    double left = most;
    for (int i = 0; i < sizes.length && sizes[i] <= MOST_CODE_BYTES && left > 0; i++) {
      left -= compile(cases.apply(sizes[i]), left / SHARES);
    }
  }

  /**
   * Repeats operations of one size, in batches between which the compilers have the processors to
   * themselves: ranks that poll would keep them from ever finishing. Returns the nanoseconds it
   * took.
   */
  private double compile(Case size, double share) {
    long start = System.nanoTime();
    double spent = 0;
    double fastest = Double.MAX_VALUE;
    long enough = size.size() <= MOST_CODE_BYTES ? CompilerThreads.callsToOptimize() : 0;
    long operations = 0;
    int batch = 1;
    int same = 0;
    int quiet = 0;
    boolean filled = false;
    boolean inPlace = false;
    while (spent < share && (quiet < QUIET_BATCHES || same < SAME_BATCHES || operations < enough)) {
      // In turn: compiled code that has seen one way only is thrown away when the other one comes.
      ranks.prepare(size, inPlace, options.iterations());
      inPlace = size.program().inPlace() && !inPlace;
      long before = CompilerThreads.compileMillis();
      double nanos = crew.max(timing.nanos(batch, options.blocking()));
      CompilerThreads.awaitIdle();
      quiet = crew.max(CompilerThreads.compileMillis() - before) > 0 ? 0 : quiet + 1;
      spent = crew.max(System.nanoTime() - start);
      double one = nanos / batch;
      if (one < (1 - IMPROVEMENT) * fastest) {
        fastest = one;
        same = 0;
      } else {
        same++;
      }
      operations += batch;
      double most = Math.max(BATCH_NANOS, Math.min(SLOW_BATCH * one, SLOW_BATCH_NANOS));
      batch = (int) Math.clamp(most / one, 1, MAX_BATCH);
      if (!filled && one < FILLING_NANOS) {
        filled = true;
        batch = Math.max(batch, FILLING_BATCH);
      }
    }
    return spent;
  }
}
