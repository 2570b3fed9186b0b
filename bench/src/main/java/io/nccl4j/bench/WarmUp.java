package io.nccl4j.bench;

import java.util.function.LongFunction;

/**
 * What runs untimed before the first size. First the just-in-time compilers get to work: operations
 * of each size are repeated until their time no longer falls, which nccl-tests, compiled ahead of
 * time, does not need. Then each size gets the warm-up operations of {@code -w}.
 *
 * <p>All ranks run the same number of operations, because they decide by times all of them know.
 */
final class WarmUp {
  /** Time for the first combination of type and reduction, and for each later one. */
  private static final double FIRST_BUDGET = 1.5e9;

  private static final double LATER_BUDGET = 0.3e9;

  /** Operations after which the compilers have seen enough, where time permits. */
  private static final long ENOUGH = 20_000;

  private static final double BATCH_NANOS = 2e6;
  private static final int MAX_BATCH = 1 << 16;
  private static final int STEADY_BATCHES = 3;

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

  // Returns the nanoseconds it took.
  private double compile(Case size, double share) {
    ranks.prepare(size, false, options.iterations());
    double spent = 0;
    double best = Double.MAX_VALUE;
    long operations = 0;
    int batch = 1;
    int steady = 0;
    while (spent < share && (steady < STEADY_BATCHES || operations < ENOUGH)) {
      double nanos = team.max(timing.nanos(batch, options.blocking()));
      double each = nanos / batch;
      steady = each > best * 0.95 ? steady + 1 : 0;
      best = Math.min(best, each);
      spent += nanos;
      operations += batch;
      if (nanos < BATCH_NANOS && batch < MAX_BATCH) {
        batch *= 2;
      }
    }
    return spent;
  }
}
