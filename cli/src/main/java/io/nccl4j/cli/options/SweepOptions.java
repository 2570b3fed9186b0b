package io.nccl4j.cli.options;

import io.nccl4j.InvalidArgumentException;
import io.nccl4j.bench.options.Blocking;
import io.nccl4j.bench.options.Options;
import picocli.CommandLine.Option;

/** Options of a benchmark: which operations run, of what sizes and types, and how often. */
public final class SweepOptions {
  @Option(
      names = {"-b", "--minbytes"},
      order = 4,
      paramLabel = "SIZE",
      defaultValue = "32M",
      converter = SizeConverter.class,
      description = "First size; default ${DEFAULT-VALUE}.")
  private long minBytes;

  @Option(
      names = {"-e", "--maxbytes"},
      order = 5,
      paramLabel = "SIZE",
      defaultValue = "32M",
      converter = SizeConverter.class,
      description = "Last size; default ${DEFAULT-VALUE}.")
  private long maxBytes;

  @Option(
      names = {"-i", "--stepbytes"},
      order = 6,
      paramLabel = "SIZE",
      defaultValue = "1M",
      converter = SizeConverter.class,
      description = "Difference between sizes; default ${DEFAULT-VALUE}.")
  private long stepBytes;

  @Option(
      names = {"-f", "--stepfactor"},
      order = 7,
      paramLabel = "N",
      defaultValue = "1",
      description = "Ratio of sizes; if above 1, it replaces -i; default ${DEFAULT-VALUE}.")
  private int stepFactor;

  @Option(
      names = {"-n", "--iters"},
      order = 8,
      paramLabel = "N",
      defaultValue = "20",
      description = "Timed operations per size and placement; default ${DEFAULT-VALUE}.")
  private int iterations;

  @Option(
      names = {"-w", "--warmup_iters"},
      order = 9,
      paramLabel = "N",
      defaultValue = "1",
      description =
          "Untimed operations per size before all others; default ${DEFAULT-VALUE}. With 0"
              + " nothing is warmed up, and the times include the just-in-time compilers: to check"
              + " results only.")
  private int warmup;

  @Option(
      names = {"-c", "--check"},
      order = 13,
      paramLabel = "N",
      defaultValue = "1",
      description = "Verifications per size and placement; 0 for none; default ${DEFAULT-VALUE}.")
  private int check;

  @Option(
      names = {"-o", "--op"},
      order = 14,
      paramLabel = "OP",
      defaultValue = "sum",
      description = "Reduction: sum, prod, min, max, avg, mulsum or all; default ${DEFAULT-VALUE}.")
  private String op;

  @Option(
      names = {"-d", "--datatype"},
      order = 15,
      paramLabel = "TYPE",
      defaultValue = "float",
      description =
          "Element type: int8, uint8, int32, uint32, int64, uint64, half, float, double, bfloat16,"
              + " f8e4m3, f8e5m2 or all; default ${DEFAULT-VALUE}.")
  private String type;

  @Option(
      names = {"-r", "--root"},
      order = 16,
      paramLabel = "RANK",
      defaultValue = "0",
      description =
          "Root of operations that have one; -1 or all for each rank in turn; default"
              + " ${DEFAULT-VALUE}.")
  private String root;

  @Option(
      names = {"-z", "--blocking"},
      order = 17,
      paramLabel = "0..3",
      defaultValue = "0",
      description =
          "After each operation: 0 go on; 1 wait for it and for all ranks; 2 wait for it; 3 wait"
              + " for it and then, untimed, for all ranks; default ${DEFAULT-VALUE}.")
  private int blocking;

  @Option(
      names = "--no-rotate",
      order = 23,
      description =
          "Use the same part of the buffers in every iteration, which caches may hold; by default"
              + " each iteration uses a different part.")
  private boolean fixed;

  /**
   * Adds what the options say.
   *
   * @throws InvalidArgumentException if one cannot be understood
   */
  public void addTo(Options.Builder builder) {
    builder
        .minBytes(minBytes)
        .maxBytes(maxBytes)
        .stepBytes(stepBytes)
        .stepFactor(stepFactor)
        .iterations(iterations)
        .warmup(warmup)
        .check(check)
        .ops(Options.ops(op))
        .types(Options.types(type))
        .root(root())
        .blocking(Blocking.ofNumber(blocking))
        .rotate(!fixed);
  }

  private int root() {
    try {
      return root.equals("all") ? -1 : Integer.parseInt(root);
    } catch (NumberFormatException e) {
      throw (InvalidArgumentException)
          new InvalidArgumentException("root is '" + root + "'", "use a rank, or all").causedBy(e);
    }
  }
}
