package io.nccl4j.bench.result;

import java.util.List;
import java.util.stream.IntStream;
import org.apache.commons.statistics.descriptive.Max;
import org.apache.commons.statistics.descriptive.Mean;
import org.apache.commons.statistics.descriptive.Min;
import org.apache.commons.statistics.descriptive.Quantile;
import org.apache.commons.statistics.descriptive.Quantile.EstimationMethod;
import org.apache.commons.statistics.descriptive.StandardDeviation;

/**
 * Times of single iterations, in microseconds for one operation. Statistics are of all but the
 * first {@code skipped}; percentiles are times that were measured, by nearest rank.
 *
 * @param skipped how many the statistics leave out
 * @param micros of each iteration the longest of all ranks
 * @param perProcess of each process, in the order of their ranks, the longest of its ranks
 */
public record IterationTimes(int skipped, List<Double> micros, List<List<Double>> perProcess) {
  /** Copies the lists. */
  public IterationTimes {
    micros = List.copyOf(micros);
    perProcess = perProcess.stream().map(List::copyOf).toList();
  }

  /** Takes the longest of the processes' times. */
  public static IterationTimes of(int skipped, List<List<Double>> perProcess) {
    int count = perProcess.getFirst().size();
    List<Double> longest =
        IntStream.range(0, count)
            .mapToObj(
                i -> perProcess.stream().mapToDouble(times -> times.get(i)).max().orElseThrow())
            .toList();
    return new IterationTimes(skipped, longest, perProcess);
  }

  private double[] counted() {
    return micros.stream().skip(skipped).mapToDouble(x -> x).toArray();
  }

  /** The shortest. */
  public double min() {
    return Min.of(counted()).getAsDouble();
  }

  /** The longest. */
  public double max() {
    return Max.of(counted()).getAsDouble();
  }

  /** The mean. */
  public double average() {
    return Mean.of(counted()).getAsDouble();
  }

  /** The time that so many of a hundred do not exceed, 1 to 100. */
  public double percentile(int percent) {
    return Quantile.withDefaults().with(EstimationMethod.HF1).evaluate(counted(), percent / 100.0);
  }

  /** Standard deviation. */
  public double deviation() {
    return StandardDeviation.of(counted()).setBiased(true).getAsDouble();
  }

  /** Coefficient of variation in per cent. */
  public double variation() {
    return average() > 0 ? 100 * deviation() / average() : 0;
  }
}
