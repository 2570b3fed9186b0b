package io.nccl4j.bench.result;

import java.util.List;
import java.util.stream.IntStream;

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

  private List<Double> counted() {
    return micros.subList(skipped, micros.size());
  }

  /** The shortest. */
  public double min() {
    return counted().stream().mapToDouble(x -> x).min().orElseThrow();
  }

  /** The longest. */
  public double max() {
    return counted().stream().mapToDouble(x -> x).max().orElseThrow();
  }

  /** The mean. */
  public double average() {
    return counted().stream().mapToDouble(x -> x).average().orElseThrow();
  }

  /** The time that so many of a hundred do not exceed, 1 to 100. */
  public double percentile(int percent) {
    List<Double> sorted = counted().stream().sorted().toList();
    return sorted.get(Math.ceilDiv(sorted.size() * percent, 100) - 1);
  }

  /** Standard deviation. */
  public double deviation() {
    double mean = average();
    return Math.sqrt(
        counted().stream().mapToDouble(x -> (x - mean) * (x - mean)).average().orElseThrow());
  }

  /** Coefficient of variation in per cent. */
  public double variation() {
    return average() > 0 ? 100 * deviation() / average() : 0;
  }
}
