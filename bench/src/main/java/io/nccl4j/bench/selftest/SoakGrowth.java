package io.nccl4j.bench.selftest;

import io.nccl4j.bench.selftest.SoakUsage.Quantity;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/**
 * How something that a process has in use grew during the soak: the median of the samples' last
 * quarter against that of their third. What the first half has is warm-up, as is the process's
 * first minute; and single samples mean nothing: compilers and collectors come and go.
 *
 * @param quantity what was measured
 * @param early median of the third quarter
 * @param late median of the last quarter
 */
public record SoakGrowth(Quantity quantity, long early, long late) {
  /** The fewest samples that tell anything. */
  static final int FEWEST = 8;

  /** How old a process is when its code is compiled and its caches are full. */
  static final Duration WARM_UP = Duration.ofMinutes(1);

  /** How everything grew; nothing if there are too few samples of a process that is so old. */
  static List<SoakGrowth> of(List<SoakUsage> all, Duration warmUp) {
    List<SoakUsage> samples =
        all.stream().filter(sample -> sample.seconds() >= warmUp.toSeconds()).toList();
    List<SoakGrowth> growths = new ArrayList<>();
    int n = samples.size();
    if (n >= FEWEST) {
      for (Quantity quantity : Quantity.values()) {
        growths.add(
            new SoakGrowth(
                quantity,
                median(samples.subList(n / 2, n - n / 4), quantity),
                median(samples.subList(n - n / 4, n), quantity)));
      }
    }
    return growths;
  }

  private static long median(List<SoakUsage> samples, Quantity quantity) {
    long[] values =
        samples.stream().mapToLong(sample -> sample.values().get(quantity)).sorted().toArray();
    return values[values.length / 2];
  }

  /** What it is, for people. */
  public String label() {
    return quantity.label();
  }

  /** The most that it may grow. */
  public long limit() {
    return quantity.limit();
  }

  String earlyText() {
    return quantity.text(early);
  }

  String lateText() {
    return quantity.text(late);
  }

  String limitText() {
    return quantity.text(quantity.limit());
  }

  /** Whether it grew by more than it may. */
  public boolean isLeak() {
    return late - early > quantity.limit();
  }

  @Override
  public String toString() {
    return quantity.label()
        + " grew from "
        + quantity.text(early)
        + " to "
        + quantity.text(late)
        + ", more than the allowed "
        + quantity.text(quantity.limit());
  }
}
