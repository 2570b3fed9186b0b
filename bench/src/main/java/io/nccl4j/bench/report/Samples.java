package io.nccl4j.bench.report;

import java.util.Arrays;
import java.util.List;
import org.apache.commons.statistics.descriptive.Quantile;
import org.apache.commons.statistics.ranking.NaturalRanking;

/**
 * Independent samples of the time of one operation, in µs.
 *
 * <p>Times that follow each other within milliseconds are alike, because what disturbs them lasts
 * longer. The median of each run is a sample; where only one run is there, its rounds are divided
 * into blocks as long as they are alike, and the median of each block is a sample.
 */
final class Samples {
  private static final Quantile QUANTILE = Quantile.withDefaults().withCopy(true);
  private static final int LEAST_BLOCKS = 5;
  private static final double MOST_ALIKE = 0.95;

  /** Blocks are longer by so much, because from few rounds they seem less alike than they are. */
  private static final int RESERVE = 4;

  /** One in so many rounds of a block, at its end, is left out: the next block is less like it. */
  private static final int GAP = 3;

  private final double[] values;

  private Samples(double[] values) {
    this.values = values;
  }

  /** A sample for each run. */
  static Samples ofRuns(List<Entry> runs) {
    return new Samples(runs.stream().mapToDouble(Samples::median).toArray());
  }

  static double median(Entry run) {
    return median(rounds(run));
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
    // Of the ranks, since a few times that are far off hide how alike the others are.
    double[] ranks = new NaturalRanking().apply(times);
    double mean = (ranks.length + 1) / 2.0;
    double products = 0;
    double squares = 0;
    for (int i = 0; i < ranks.length; i++) {
      squares += (ranks[i] - mean) * (ranks[i] - mean);
      products += i == 0 ? 0 : (ranks[i] - mean) * (ranks[i - 1] - mean);
    }
    double alike = squares == 0 ? 0 : Math.min(products / squares, MOST_ALIKE);
    // Below that it is chance.
    boolean independent = alike < 1 / Math.sqrt(ranks.length);
    int length = independent ? 1 : (int) Math.ceil((1 + alike) / (1 - alike)) + RESERVE;
    length = Math.min(length, Math.max(1, times.length / LEAST_BLOCKS));
    double[] medians = new double[times.length / length];
    for (int i = 0; i < medians.length; i++) {
      medians[i] = median(Arrays.copyOfRange(times, i * length, (i + 1) * length - length / GAP));
    }
    return medians;
  }
}
