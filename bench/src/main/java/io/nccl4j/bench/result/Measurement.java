package io.nccl4j.bench.result;

import java.util.List;
import java.util.OptionalLong;
import org.jspecify.annotations.Nullable;

/**
 * One placement, out of place or in place, at one size.
 *
 * @param micros time of one operation in microseconds: the median of {@code rounds}
 * @param algBw algorithm bandwidth in GB/s, 1 GB = 10⁹ bytes
 * @param busBw bus bandwidth in GB/s
 * @param wrong wrong elements on all ranks; empty if unchecked
 * @param rounds each time the iterations were repeated, in order: time of one operation in
 *     microseconds, mean over the round's iterations and, unless asked otherwise, the ranks
 * @param cpuMicros of one operation, the time to issue it, in microseconds, likewise
 * @param iterations times of single iterations; null if nobody asked
 */
public record Measurement(
    double micros,
    double algBw,
    double busBw,
    OptionalLong wrong,
    List<Double> rounds,
    double cpuMicros,
    @Nullable IterationTimes iterations) {
  /** Copies the list. */
  public Measurement {
    rounds = List.copyOf(rounds);
  }
}
