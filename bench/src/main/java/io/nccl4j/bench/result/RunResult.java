package io.nccl4j.bench.result;

import java.time.LocalDateTime;
import java.util.List;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/**
 * All of a run.
 *
 * @param info what was known before
 * @param sizes the lines of the table
 * @param coldMicros time of the very first operation, at the first size, on the slowest rank, in
 *     microseconds; it has connections, code and pages to make
 * @param warmMicros time of the same operation at the end of the run, measured in the same way
 * @param line how far apart the processors were
 * @param memory what was taken; null where nobody asked
 * @param phases when memory was taken; null where nobody asked
 * @param predicted what NCCL was predicted to take, and took; null where nobody asked or NCCL does
 *     not count it
 * @param end when it ended, in local time
 */
public record RunResult(
    RunInfo info,
    List<SizeResult> sizes,
    double coldMicros,
    double warmMicros,
    LineLatency line,
    @Nullable MemoryUse memory,
    @Nullable MemoryPhases phases,
    @Nullable PredictedMemory predicted,
    LocalDateTime end) {
  /** Copies the list. */
  public RunResult {
    sizes = List.copyOf(sizes);
  }

  /** Number of measurements with at least one wrong element. */
  public long wrongMeasurements() {
    return measurements().filter(m -> m.wrong().orElse(0) > 0).count();
  }

  /** Whether no checked element was wrong. */
  public boolean correct() {
    return wrongMeasurements() == 0;
  }

  /** Whether the average bus bandwidth reaches the floor that the run was given, if any. */
  public boolean fastEnough() {
    return info.options().method().isEnough(averageBusBw());
  }

  /** Mean of all measurements' bus bandwidths in GB/s. */
  public double averageBusBw() {
    return measurements().mapToDouble(Measurement::busBw).average().orElse(0);
  }

  private Stream<Measurement> measurements() {
    return sizes.stream()
        .flatMap(
            size -> Stream.concat(Stream.of(size.outOfPlace()), Stream.ofNullable(size.inPlace())));
  }
}
