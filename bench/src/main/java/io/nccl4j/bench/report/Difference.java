package io.nccl4j.bench.report;

import java.util.Arrays;
import org.apache.commons.statistics.inference.MannWhitneyUTest;
import org.apache.commons.statistics.inference.WilcoxonSignedRankTest;

/**
 * How two sets of times differ, by methods that assume nothing of the times' distribution.
 *
 * @param ratio of the changed ones to the base: the median of the ratios of all pairs (Hodges and
 *     Lehmann), which scatters less than the ratio of the medians
 * @param low lower end of the ratio's 95 % interval, by the same pairs
 * @param high upper end
 * @param p probability that sets of the same thing differ as much (Mann and Whitney, or Wilcoxon)
 */
record Difference(double ratio, double low, double high, double p) {
  private static final double NORMAL_95 = 1.96;

  /** Of more than so many values the quantiles stand for all. */
  private static final int MOST_VALUES = 1000;

  static Difference of(Samples base, Samples changed) {
    double[] before = some(base.values());
    double[] after = some(changed.values());
    double[] ratios = new double[before.length * after.length];
    for (int i = 0; i < ratios.length; i++) {
      ratios[i] = after[i / before.length] / before[i % before.length];
    }
    Arrays.sort(ratios);
    // As many pairs lie outside as Mann and Whitney's count can be too small by chance.
    double pairs = ratios.length;
    double deviation = Math.sqrt(pairs * (before.length + after.length + 1) / 12);
    int outside = (int) Math.max(0, pairs / 2 - NORMAL_95 * deviation);
    double p = MannWhitneyUTest.withDefaults().test(base.values(), changed.values()).getPValue();
    return new Difference(
        Samples.median(ratios), ratios[outside], ratios[ratios.length - 1 - outside], p);
  }

  /**
   * How sides differ whose samples were measured in turns: by Wilcoxon's signed ranks.
   *
   * @param logarithms of the ratio in each turn
   */
  static Difference ofTurns(double[] logarithms) {
    int n = logarithms.length;
    double[] means = new double[n * (n + 1) / 2];
    int next = 0;
    for (int i = 0; i < n; i++) {
      for (int j = i; j < n; j++) {
        means[next++] = (logarithms[i] + logarithms[j]) / 2;
      }
    }
    Arrays.sort(means);
    double pairs = means.length;
    int outside = (int) Math.max(0, pairs / 2 - NORMAL_95 * Math.sqrt(pairs * (2 * n + 1) / 12));
    boolean equal = Arrays.stream(logarithms).allMatch(logarithm -> logarithm == 0);
    double p = equal ? 1 : WilcoxonSignedRankTest.withDefaults().test(logarithms).getPValue();
    return new Difference(
        Math.exp(Samples.median(means)),
        Math.exp(means[outside]),
        Math.exp(means[means.length - 1 - outside]),
        p);
  }

  /** The same of too few samples for a test. */
  Difference untested() {
    return new Difference(ratio, low, high, Double.NaN);
  }

  private static double[] some(double[] values) {
    if (values.length <= MOST_VALUES) {
      return values;
    }
    Arrays.sort(values);
    double[] some = new double[MOST_VALUES];
    for (int i = 0; i < MOST_VALUES; i++) {
      some[i] = values[(int) ((i + 0.5) * values.length / MOST_VALUES)];
    }
    return some;
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
