package io.nccl4j.bench.report;

import java.util.Arrays;
import java.util.List;
import org.apache.commons.statistics.descriptive.Quantile;

/**
 * Independent samples of the time of one operation, in µs.
 *
 * <p>Times that follow each other within milliseconds are alike, because what disturbs them lasts
 * longer. The median of each run is a sample; where only one run is there, its rounds are divided
 * into blocks as long as they are alike, and the median of each block is a sample.
 */
final class Samples {
  private static final Quantile QUANTILE = Quantile.withDefaults().withCopy(true);
  private static final int LEAST_BLOCKS = 6;
  private static final double MOST_ALIKE = 0.95;

  private final double[] values;

  private Samples(double[] values) {
    this.values = values;
  }

  /** A sample for each run. */
  static Samples ofRuns(List<Entry> runs) {
    return new Samples(runs.stream().mapToDouble(run -> median(rounds(run))).toArray());
  }

  /** A sample for each block of rounds of all runs. */
  static Samples ofRounds(List<Entry> runs) {
    return new Samples(
        runs.stream().flatMapToDouble(run -> Arrays.stream(blocks(rounds(run)))).toArray());
  }

  private static double[] rounds(Entry run) {
    return run.rounds().stream().mapToDouble(Double::doubleValue).toArray();
  }

  double[] values() {
    return values.clone();
  }

  int count() {
    return values.length;
  }

  double median() {
    return median(values);
  }

  /** Between the quartiles lies this part of the median. */
  double spread() {
    double[] quartiles = QUANTILE.evaluate(values, 0.25, 0.75);
    return (quartiles[1] - quartiles[0]) / median();
  }

  static double median(double[] values) {
    return QUANTILE.evaluate(values, 0.5);
  }

  /** Medians of blocks, by the correlation of each round's time with the next one's. */
  static double[] blocks(double[] times) {
    double[] logs = Arrays.stream(times).map(Math::log).toArray();
    double mean = Arrays.stream(logs).average().orElseThrow();
    double products = 0;
    double squares = 0;
    for (int i = 0; i < logs.length; i++) {
      squares += (logs[i] - mean) * (logs[i] - mean);
      products += i == 0 ? 0 : (logs[i] - mean) * (logs[i - 1] - mean);
    }
    double alike = squares == 0 ? 0 : Math.min(products / squares, MOST_ALIKE);
    // Below that it is chance, at the usual two standard errors.
    boolean independent = alike < 2 / Math.sqrt(logs.length);
    int length = independent ? 1 : (int) Math.ceil((1 + alike) / (1 - alike));
    length = Math.min(length, Math.max(1, times.length / LEAST_BLOCKS));
    double[] medians = new double[times.length / length];
    for (int i = 0; i < medians.length; i++) {
      medians[i] = median(Arrays.copyOfRange(times, i * length, (i + 1) * length));
    }
    return medians;
  }
}
