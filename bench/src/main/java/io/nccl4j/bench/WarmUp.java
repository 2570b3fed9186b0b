package io.nccl4j.bench;

import java.util.function.LongFunction;

/**
 * What runs untimed before the first size. First the just-in-time compilers get to work: operations
 * of each size are repeated until nothing more is compiled, which nccl-tests, compiled ahead of
 * time, does not need. Then each size gets the warm-up operations of {@code -w}.
 *
 * <p>All ranks run the same number of operations, because they decide by times all of them know.
 */
final class WarmUp {
  /** Time for the first combination of type and reduction, and for each later one. */
  private static final double FIRST_BUDGET = 3e9;

  private static final double LATER_BUDGET = 0.5e9;

  /** Operations after which the compilers have seen enough, where time permits. */
  private static final long ENOUGH = 20_000;

  private static final double BATCH_NANOS = 5e6;
  private static final int FIRST_BATCH = 100;
  private static final int MAX_BATCH = 1 << 16;
  private static final int QUIET_BATCHES = 3;

  private final Options options;
  private final RankSet ranks;
  private final Team team;
  private final Timing timing;
  private final boolean compile;
  private double budget = FIRST_BUDGET;

  /**
   * Warms up {@code ranks}.
   *
   * @param compile whether the compilers' warm-up is wanted
   */
  WarmUp(Options options, RankSet ranks, Team team, Timing timing, boolean compile) {
    this.options = options;
    this.ranks = ranks;
    this.team = team;
    this.timing = timing;
    this.compile = compile;
  }

  /** Runs both warm-ups over all sizes, doubling; {@code cases} tells what a size means. */
  void run(LongFunction<Case> cases) {
    long[] sizes = options.sweep().doublings().toArray();
    double left = compile ? budget : 0;
    for (int i = 0; i < sizes.length && left > 0; i++) {
      left -= compile(cases.apply(sizes[i]), left / (sizes.length - i));
    }
    budget = LATER_BUDGET;
    for (long size : sizes) {
      if (options.warmup() > 0) {
        ranks.prepare(cases.apply(size), false, options.warmup());
        timing.nanos(options.warmup(), options.blocking());
      }
    }
  }

  /**
   * Repeats operations of one size, in batches between which the compilers have the processors to
   * themselves: ranks that poll would keep them from ever finishing. Returns the nanoseconds it
   * took.
   */
  private double compile(Case size, double share) {
    ranks.prepare(size, false, options.iterations());
    long start = System.nanoTime();
    double spent = 0;
    long operations = 0;
    int batch = FIRST_BATCH;
    int quiet = 0;
    while (spent < share && (quiet < QUIET_BATCHES || operations < ENOUGH)) {
      long before = CompilerThreads.compileMillis();
      double nanos = team.max(timing.nanos(batch, options.blocking()));
      CompilerThreads.awaitIdle();
      boolean compiled = team.max(CompilerThreads.compileMillis() - before) > 0;
      quiet = compiled ? 0 : quiet + 1;
      operations += batch;
      batch = (int) Math.clamp(batch * BATCH_NANOS / nanos, 1, MAX_BATCH);
      spent = team.max(System.nanoTime() - start);
    }
    return spent;
  }
}
