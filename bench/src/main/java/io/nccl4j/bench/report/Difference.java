package io.nccl4j.bench.report;

import java.util.Arrays;
import java.util.SplittableRandom;
import org.apache.commons.statistics.inference.MannWhitneyUTest;

/**
 * How two sets of times differ.
 *
 * @param ratio median of the changed ones by median of the base
 * @param low lower end of the ratio's 95 % interval, by bootstrap
 * @param high upper end
 * @param p probability that sets of the same thing differ as much, by Mann and Whitney's test,
 *     which assumes nothing of the times' distribution
 */
record Difference(double ratio, double low, double high, double p) {
  private static final int RESAMPLES = 2000;
  private static final long SEED = 20260301;

  static Difference of(Samples base, Samples changed) {
    // The same data give the same interval.
    SplittableRandom random = new SplittableRandom(SEED);
    double[] ratios = new double[RESAMPLES];
    for (int i = 0; i < RESAMPLES; i++) {
      ratios[i] = resampled(changed.values(), random) / resampled(base.values(), random);
    }
    Arrays.sort(ratios);
    double p = MannWhitneyUTest.withDefaults().test(base.values(), changed.values()).getPValue();
    return new Difference(
        changed.median() / base.median(),
        ratios[(int) (0.025 * RESAMPLES)],
        ratios[(int) (0.975 * RESAMPLES)],
        p);
  }

  private static double resampled(double[] values, SplittableRandom random) {
    double[] drawn = new double[values.length];
    for (int i = 0; i < drawn.length; i++) {
      drawn[i] = values[random.nextInt(values.length)];
    }
    return Samples.median(drawn);
  }

  /**
   * Which of many differences to believe, so that among believed ones at most the part {@code
   * level} is chance (Benjamini and Hochberg).
   */
  static boolean[] believed(double[] p, double level) {
    double[] sorted = p.clone();
    Arrays.sort(sorted);
    double limit = -1;
    for (int i = 0; i < sorted.length; i++) {
      if (sorted[i] <= level * (i + 1) / sorted.length) {
        limit = sorted[i];
      }
    }
    boolean[] believed = new boolean[p.length];
    for (int i = 0; i < p.length; i++) {
      believed[i] = p[i] <= limit;
    }
    return believed;
  }
}
