package io.nccl4j.bench.options;

import io.nccl4j.InvalidArgumentException;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * How times are taken and shown. Immutable, and always valid.
 *
 * @param aggregated operations that each iteration issues as one group
 * @param cycles how often all sizes are measured; 0 without end
 * @param graphLaunches how often the graph is launched that has all iterations; 0 for no graph
 * @param average which of the ranks' times counts
 * @param cpuTime whether the time that issuing takes is shown, instead of that until completion
 * @param perIteration whether each iteration's time is taken, too
 * @param skipped how many of those the statistics leave out, from the first
 * @param unaligned index of the first element in the buffers
 * @param memory whether to report memory
 * @param minBusBw GB/s of which the average bus bandwidth must reach 90 %; 0 for no floor
 * @param seat where to take turns with another run; null for not at all
 */
public record Method(
    int aggregated,
    int cycles,
    int graphLaunches,
    Average average,
    boolean cpuTime,
    boolean perIteration,
    int skipped,
    int unaligned,
    boolean memory,
    double minBusBw,
    @Nullable TurnSeat seat) {
  /** GB/s that the average bus bandwidth should have. */
  public static final String MIN_BW = "NCCL_TESTS_MIN_BW";

  private static final double ENOUGH = 0.9;

  /**
   * Checks the numbers.
   *
   * @throws InvalidArgumentException if one is out of range, or two cannot be combined
   */
  public Method {
    Options.atLeast("agg_iters", aggregated, 1);
    Options.atLeast("run_cycles", cycles, 0);
    Options.atLeast("cudagraph", graphLaunches, 0);
    Options.atLeast("per_iter_skip", skipped, 0);
    Options.atLeast("unalign", unaligned, 0);
    if (perIteration && graphLaunches > 0) {
      throw new InvalidArgumentException(
          "per_iter_timing and cudagraph cannot be combined", "use -I without -G");
    }
    if (skipped > 0 && !perIteration) {
      throw new InvalidArgumentException(
          "per_iter_skip is " + skipped + " without per_iter_timing", "use -K with -I 1");
    }
  }

  /** nccl-tests' defaults. */
  public static Method standard() {
    return new Method(1, 1, 0, Average.MEAN, false, false, 0, 0, false, 0, null);
  }

  /**
   * With the floor and the turns that the environment asks for.
   *
   * @throws InvalidArgumentException if it cannot be understood
   */
  public Method with(Map<String, String> environment) {
    return new Method(
        aggregated,
        cycles,
        graphLaunches,
        average,
        cpuTime,
        perIteration,
        skipped,
        unaligned,
        memory,
        floor(environment.get(MIN_BW)),
        TurnSeat.of(environment));
  }

  private double floor(@Nullable String text) {
    if (text == null) {
      return minBusBw;
    }
    double floor;
    try {
      floor = Double.parseDouble(text);
    } catch (NumberFormatException e) {
      floor = Double.NaN;
    }
    if (!(floor >= 0 && floor < Double.POSITIVE_INFINITY)) {
      throw new InvalidArgumentException(
          MIN_BW + " is '" + text + "'", "use a number of GB/s, 0 or more");
    }
    return floor;
  }

  /** Whether an average bus bandwidth in GB/s is enough. */
  public boolean isEnough(double busBw) {
    return busBw >= ENOUGH * minBusBw;
  }
}
