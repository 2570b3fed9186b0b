package io.nccl4j.bench.options;

import io.nccl4j.Backend;
import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.ReduceOp;
import java.nio.file.Path;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * What to measure and how; nccl-tests' options and defaults. Immutable, and always valid.
 *
 * @param threads threads of this process
 * @param gpus ranks that each thread drives
 * @param sweep the sizes
 * @param iterations timed operations per size and placement
 * @param warmup untimed operations per warm-up size; with 0 the compilers are not warmed up either
 * @param check verifications per size and placement; 0 is none
 * @param ops reductions, one run each; programs without a reduction ignore them
 * @param types element types, one run each
 * @param root the root, or −1 for all roots; programs without a root ignore it
 * @param blocking what the timed loop does after each operation
 * @param rotate whether each operation uses another part of the buffers
 * @param timestamps whether each line ends with a time stamp
 * @param output file for JSON; null for none
 * @param backend where the ranks run
 * @param setup how communicators, streams and buffers are made
 * @param method how times are taken and shown
 */
public record Options(
    int threads,
    int gpus,
    Sweep sweep,
    int iterations,
    int warmup,
    int check,
    List<ReduceOp.Kind> ops,
    List<DataType> types,
    int root,
    Blocking blocking,
    boolean timestamps,
    boolean rotate,
    @Nullable Path output,
    Backend backend,
    Setup setup,
    Method method) {
  /** The largest number of ranks one process can hold. */
  public static final int MAX_RANKS = Device.MAX_HOST_ORDINAL + 1;

  /**
   * Checks every option.
   *
   * @throws InvalidArgumentException if one is out of range
   */
  public Options {
    atLeast("nthreads", threads, 1);
    atLeast("ngpus", gpus, 1);
    if ((long) threads * gpus > MAX_RANKS) {
      throw new InvalidArgumentException(
          "nthreads " + threads + " times ngpus " + gpus + " is too many ranks",
          "use at most " + MAX_RANKS + " in one process");
    }
    atLeast("iters", iterations, 1);
    atLeast("warmup_iters", warmup, 0);
    atLeast("check", check, 0);
    atLeast("root", root, -1);
    if (method.graphLaunches() > 0 && (blocking != Blocking.NONE || setup.nullStream())) {
      throw new InvalidArgumentException(
          "cudagraph and "
              + (setup.nullStream() ? "stream_null" : "blocking")
              + " cannot be combined",
          "a captured stream cannot be waited for, and cannot be the default stream");
    }
    if (method.skipped() >= iterations) {
      throw new InvalidArgumentException(
          "per_iter_skip is " + method.skipped() + " of " + iterations + " iterations",
          "use less than iters");
    }
    ops = List.copyOf(ops);
    types = List.copyOf(types);
    if (ops.isEmpty() || types.isEmpty()) {
      throw new InvalidArgumentException("no op or no datatype is given", "name one, or all");
    }
  }

  static void atLeast(String name, int value, int least) {
    if (value < least) {
      throw new InvalidArgumentException(name + " is " + value, "use " + least + " or more");
    }
  }

  /** Ranks of this process. */
  public int localRanks() {
    return threads * gpus;
  }

  /**
   * Whether the just-in-time compilers' work is kept out of the figures: by a warm-up, by waiting
   * for the compilers, and by repeating what is short.
   */
  public boolean isCareful() {
    return warmup > 0;
  }

  /**
   * Checks that a process can have its ranks, and that there is such a root.
   *
   * @param firstRank number of this process's first rank
   * @param nranks ranks of the run in all processes
   * @throws InvalidArgumentException if not
   */
  public void checkRanks(int firstRank, int nranks) {
    int last = firstRank + localRanks() - 1;
    if (firstRank < 0 || last >= nranks) {
      throw new InvalidArgumentException(
          "ranks " + firstRank + " to " + last + " asked for, but there are " + nranks + " ranks",
          "ranks are processes times nthreads times ngpus, numbered from 0");
    }
    for (int size : groups(nranks)) {
      if (root >= size) {
        throw new InvalidArgumentException(
            "root is " + root + ", but there are " + size + " ranks", "use -1 to " + (size - 1));
      }
    }
  }

  /** The numbers of ranks that operations run on, each once: all, or those of the groups. */
  public int[] groups(int nranks) {
    Grouping grouping = setup.grouping();
    return grouping == null ? new int[] {nranks} : grouping.sizes(localRanks(), nranks);
  }

  /** A builder with nccl-tests' defaults. */
  public static Builder builder() {
    return new Builder();
  }

  /**
   * The reductions that nccl-tests calls {@code label}: one, or all of them for {@code all}.
   *
   * @throws InvalidArgumentException if there is none
   */
  public static List<ReduceOp.Kind> ops(String label) {
    if (label.equals("all")) {
      return List.of(ReduceOp.Kind.values());
    }
    for (ReduceOp.Kind kind : ReduceOp.Kind.values()) {
      if (kind.label().equals(label)) {
        return List.of(kind);
      }
    }
    throw new InvalidArgumentException(
        "unknown op '" + label + "'", "use sum, prod, min, max, avg, mulsum or all");
  }

  /**
   * The element types that nccl-tests calls {@code label}: one, or all of them for {@code all}.
   *
   * @throws InvalidArgumentException if there is none
   */
  public static List<DataType> types(String label) {
    return label.equals("all") ? List.of(DataType.values()) : List.of(DataType.ofLabel(label));
  }

  /** Collects options; used by one thread. {@link #build} checks them. */
  public static final class Builder {
    private int threads = 1;
    private int gpus = 1;
    private long minBytes = 32L << 20;
    private long maxBytes = 32L << 20;
    private long stepBytes = 1L << 20;
    private int stepFactor = 1;
    private int iterations = 20;
    private int warmup = 1;
    private int check = 1;
    private List<ReduceOp.Kind> ops = List.of(ReduceOp.Kind.SUM);
    private List<DataType> types = List.of(DataType.FLOAT32);
    private int root;
    private Blocking blocking = Blocking.NONE;
    private boolean timestamps;
    private boolean rotate = true;
    private @Nullable Path output;
    private Backend backend = Backend.AUTO;
    private Setup setup = Setup.standard();
    private Method method = Method.standard();

    private Builder() {}

    /** Threads of this process; default 1. */
    public Builder threads(int value) {
      threads = value;
      return this;
    }

    /** Ranks that each thread drives; default 1. */
    public Builder gpus(int value) {
      gpus = value;
      return this;
    }

    /** The first size; default 32 MiB. */
    public Builder minBytes(long value) {
      minBytes = value;
      return this;
    }

    /** The last size; default 32 MiB. */
    public Builder maxBytes(long value) {
      maxBytes = value;
      return this;
    }

    /** The difference between sizes if there is no factor; default 1 MiB. */
    public Builder stepBytes(long value) {
      stepBytes = value;
      return this;
    }

    /** The ratio of sizes; default 1, which adds {@link #stepBytes} instead. */
    public Builder stepFactor(int value) {
      stepFactor = value;
      return this;
    }

    /** Timed operations per size and placement; default 20. */
    public Builder iterations(int value) {
      iterations = value;
      return this;
    }

    /** Untimed operations per warm-up size; default 1. */
    public Builder warmup(int value) {
      warmup = value;
      return this;
    }

    /** Verifications per size and placement; default 1, 0 is none. */
    public Builder check(int value) {
      check = value;
      return this;
    }

    /** Reductions, one run each; default sum. */
    public Builder ops(List<ReduceOp.Kind> value) {
      ops = value;
      return this;
    }

    /** Element types, one run each; default float. */
    public Builder types(List<DataType> value) {
      types = value;
      return this;
    }

    /** The root, or −1 for all roots; default 0. */
    public Builder root(int value) {
      root = value;
      return this;
    }

    /** What the timed loop does after each operation; default nothing. */
    public Builder blocking(Blocking value) {
      blocking = value;
      return this;
    }

    /** Whether each line ends with a time stamp; default not. */
    public Builder timestamps(boolean value) {
      timestamps = value;
      return this;
    }

    /** Whether each operation uses another part of the buffers, which keeps them out of caches. */
    public Builder rotate(boolean value) {
      rotate = value;
      return this;
    }

    /** File for JSON; default none. */
    public Builder output(@Nullable Path value) {
      output = value;
      return this;
    }

    /** Where the ranks run; default the GPUs if they are usable, else the host. */
    public Builder backend(Backend value) {
      backend = value;
      return this;
    }

    /** How communicators, streams and buffers are made. */
    public Builder setup(Setup value) {
      setup = value;
      return this;
    }

    /** How times are taken and shown. */
    public Builder method(Method value) {
      method = value;
      return this;
    }

    /**
     * The checked options.
     *
     * @throws InvalidArgumentException if one is out of range
     */
    public Options build() {
      return new Options(
          threads,
          gpus,
          new Sweep(minBytes, maxBytes, stepBytes, stepFactor),
          iterations,
          warmup,
          check,
          ops,
          types,
          root,
          blocking,
          timestamps,
          rotate,
          output,
          backend,
          setup,
          method);
    }
  }
}
