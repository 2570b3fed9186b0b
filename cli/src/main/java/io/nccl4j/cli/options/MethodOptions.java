package io.nccl4j.cli.options;

import io.nccl4j.InvalidArgumentException;
import io.nccl4j.bench.options.Average;
import io.nccl4j.bench.options.Method;
import io.nccl4j.bench.options.Options;
import java.util.Map;
import picocli.CommandLine.Option;

/** Options of a benchmark: how operations are issued and timed, and what is shown of that. */
public final class MethodOptions {
  @Option(
      names = {"-m", "--agg_iters"},
      order = 10,
      paramLabel = "N",
      defaultValue = "1",
      description = "Operations per iteration, issued as one group; default ${DEFAULT-VALUE}.")
  private int aggregated;

  @Option(
      names = {"-N", "--run_cycles"},
      order = 11,
      paramLabel = "N",
      defaultValue = "1",
      description = "How often to measure all sizes; 0 for ever; default ${DEFAULT-VALUE}.")
  private int cycles;

  @Option(
      names = {"-G", "--cudagraph"},
      order = 20,
      paramLabel = "N",
      defaultValue = "0",
      description =
          "Capture all iterations in a graph and launch it N times; default ${DEFAULT-VALUE}.")
  private int graphLaunches;

  @Option(
      names = {"-a", "--average"},
      order = 26,
      paramLabel = "0..3",
      defaultValue = "1",
      description =
          "Which time to report: 0 rank 0's, 1 the mean of all ranks, 2 the shortest, 3 the"
              + " longest; default ${DEFAULT-VALUE}.")
  private int average;

  @Option(
      names = {"-C", "--report_cputime"},
      order = 21,
      paramLabel = "0|1",
      defaultValue = "0",
      description = "Whether to show the time spent issuing; default ${DEFAULT-VALUE}.")
  private int cpuTime;

  @Option(
      names = {"-S", "--report_timestamps"},
      order = 22,
      paramLabel = "0|1",
      defaultValue = "0",
      description = "Whether lines end with a time stamp; default ${DEFAULT-VALUE}.")
  private int timestamps;

  @Option(
      names = {"-I", "--per_iter_timing"},
      order = 33,
      paramLabel = "0|1",
      defaultValue = "0",
      description = "Whether to time each iteration as well; default ${DEFAULT-VALUE}.")
  private int perIteration;

  @Option(
      names = {"-K", "--per_iter_skip"},
      order = 34,
      paramLabel = "N",
      defaultValue = "0",
      description =
          "First iterations that the statistics of -I leave out; default ${DEFAULT-VALUE}.")
  private int skipped;

  @Option(
      names = {"-u", "--unalign"},
      order = 32,
      paramLabel = "N",
      defaultValue = "0",
      description = "Index of the first buffer element to use; default ${DEFAULT-VALUE}.")
  private int unaligned;

  @Option(
      names = {"-M", "--memory"},
      order = 31,
      paramLabel = "0|1",
      defaultValue = "0",
      description = "Whether to report the memory taken; default ${DEFAULT-VALUE}.")
  private int memory;

  /**
   * Adds what the options say.
   *
   * @throws InvalidArgumentException if one is out of range
   */
  public void addTo(Options.Builder builder, Map<String, String> environment) {
    builder
        .timestamps(OptionRange.yes("report_timestamps", timestamps))
        .method(method().with(environment));
  }

  private Method method() {
    return new Method(
        aggregated,
        cycles,
        graphLaunches,
        Average.ofNumber(average),
        OptionRange.yes("report_cputime", cpuTime),
        OptionRange.yes("per_iter_timing", perIteration),
        skipped,
        unaligned,
        OptionRange.yes("memory", memory),
        0,
        null);
  }
}
