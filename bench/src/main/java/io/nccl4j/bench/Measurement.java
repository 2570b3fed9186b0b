package io.nccl4j.bench;

import java.util.List;
import java.util.OptionalLong;

/**
 * One placement, out of place or in place, at one size.
 *
 * @param micros time of one operation in microseconds: the median of {@code rounds}
 * @param algBw algorithm bandwidth in GB/s, 1 GB = 10⁹ bytes
 * @param busBw bus bandwidth in GB/s
 * @param wrong wrong elements on all ranks; empty if unchecked
 * @param rounds each time the iterations were repeated, in order: time of one operation in
 *     microseconds, mean over the round's iterations and the ranks
 */
public record Measurement(
    double micros, double algBw, double busBw, OptionalLong wrong, List<Double> rounds) {
  /** Copies the list. */
  public Measurement {
    rounds = List.copyOf(rounds);
  }
}
