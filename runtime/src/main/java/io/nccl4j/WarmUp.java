package io.nccl4j;

import java.util.Arrays;
import java.util.EnumSet;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;

/**
 * A plan for {@link Communicator#warmUp}: it runs each chosen operation with each size, data type
 * and, if it reduces, reduction. Immutable; plans with the same contents are equal, on all ranks.
 *
 * <p>How often each combination runs depends only on the plan, so that all ranks agree: {@link
 * #iterations()} times for up to 4096 bytes, in inverse proportion to the size above that, and less
 * often if the combinations would exceed {@link #mostOperations()} in total, but at least once.
 * Combinations that run 64 times or more are repeated some more, equally on all ranks, until the
 * compilers of all ranks have nothing left to do.
 */
public final class WarmUp {
  /** What can be warmed up. */
  public enum Operation {
    /** {@link Communicator#allReduce}. */
    ALL_REDUCE,
    /** {@link Communicator#broadcast}, from rank 0. */
    BROADCAST,
    /** {@link Communicator#reduce}, to rank 0. */
    REDUCE,
    /** {@link Communicator#allGather}. */
    ALL_GATHER,
    /** {@link Communicator#reduceScatter}. */
    REDUCE_SCATTER,
    /** {@link Communicator#allToAll}. */
    ALL_TO_ALL,
    /** {@link Communicator#gather}, to rank 0. */
    GATHER,
    /** {@link Communicator#scatter}, from rank 0. */
    SCATTER,
    /** {@link Communicator#allGatherV}. */
    ALL_GATHER_V,
    /** {@link Communicator#reduceScatterV}. */
    REDUCE_SCATTER_V,
    /** {@link Communicator#allToAllV}. */
    ALL_TO_ALL_V,
    /** {@link Communicator#gatherV}, to rank 0. */
    GATHER_V,
    /** {@link Communicator#scatterV}, from rank 0. */
    SCATTER_V,
    /** {@link Communicator#send} and {@link Communicator#recv} in one {@link Group}. */
    SEND_RECV,
    /** {@link Communicator#barrier}. */
    BARRIER;

    private static final Set<Operation> REDUCING =
        EnumSet.of(ALL_REDUCE, REDUCE, REDUCE_SCATTER, REDUCE_SCATTER_V);

    /** Whether it takes a reduction. */
    public boolean reduces() {
      return REDUCING.contains(this);
    }
  }

  private static final int SMALL_BYTES = 4096;

  private final Set<Operation> operations;
  private final List<Long> sizes;
  private final Set<DataType> types;
  private final Set<ReduceOp.Kind> reductions;
  private final Set<Integer> peers;
  private final boolean captured;
  private final boolean wrapped;
  private final int iterations;
  private final long mostOperations;

  private WarmUp(Builder builder) {
    operations = java.util.Collections.unmodifiableSet(builder.operations);
    sizes = List.copyOf(builder.sizes);
    types = java.util.Collections.unmodifiableSet(builder.types);
    reductions = java.util.Collections.unmodifiableSet(builder.reductions);
    peers = java.util.Collections.unmodifiableSet(builder.peers);
    captured = builder.captured;
    wrapped = builder.wrapped;
    iterations = builder.iterations;
    mostOperations = builder.mostOperations;
  }

  /** A plan for the given operations, otherwise with the defaults of {@link #builder()}. */
  public static WarmUp of(Operation first, Operation... more) {
    return builder().operations(first, more).build();
  }

  /**
   * A builder that starts with all operations, 8, 4096 and 65536 bytes, {@link DataType#FLOAT32},
   * {@link ReduceOp#SUM}, all peers, buffers of the device, nothing captured, 12,000 iterations and
   * at most 240,000 operations.
   */
  public static Builder builder() {
    return new Builder();
  }

  /** The operations to run. */
  public Set<Operation> operations() {
    return operations;
  }

  /** Sizes of the larger of a rank's send and receive data, in bytes. */
  public List<Long> sizes() {
    return sizes;
  }

  /** The data types. */
  public Set<DataType> types() {
    return types;
  }

  /** The reductions, for operations that reduce. */
  public Set<ReduceOp.Kind> reductions() {
    return reductions;
  }

  /**
   * The ranks with which every rank exchanges messages; empty if each rank does so with every
   * other.
   */
  public Set<Integer> peers() {
    return peers;
  }

  /** Whether each operation also runs as a graph. */
  public boolean captured() {
    return captured;
  }

  /** Whether each operation also runs on wrapped memory. */
  public boolean wrapped() {
    return wrapped;
  }

  /** How often a small operation runs. */
  public int iterations() {
    return iterations;
  }

  /** The most operations to run in total, though each combination runs at least once. */
  public long mostOperations() {
    return mostOperations;
  }

  /** How often operations of {@code bytes} bytes run, for each combination and way. */
  public int iterations(long bytes) {
    long combinations = 0;
    for (Operation operation : operations) {
      combinations +=
          operation == Operation.BARRIER
              ? 1
              : (long) sizes.size()
                  * types.size()
                  * (operation.reduces() ? reductions.size() : 1)
                  * (wrapped ? 2 : 1);
    }
    combinations *= captured ? 2 : 1;
    long share = Math.min(iterations, mostOperations / combinations);
    return (int) Math.max(1, share * SMALL_BYTES / Math.max(SMALL_BYTES, bytes));
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof WarmUp plan && toString().equals(plan.toString());
  }

  @Override
  public int hashCode() {
    return toString().hashCode();
  }

  /** The whole plan, in words that are the same on all ranks. */
  @Override
  public String toString() {
    return operations
        + " of "
        + sizes
        + " B, types "
        + types
        + ", reductions "
        + reductions
        + ", peers "
        + (peers.isEmpty() ? "all" : peers)
        + (captured ? ", captured" : "")
        + (wrapped ? ", wrapped" : "")
        + ", "
        + iterations
        + " iterations, at most "
        + mostOperations
        + " operations";
  }

  /** Builds a plan. Not thread-safe. */
  public static final class Builder {
    private Set<Operation> operations = EnumSet.allOf(Operation.class);
    private Set<Long> sizes = new TreeSet<>(List.of(8L, 4096L, 65536L));
    private Set<DataType> types = EnumSet.of(DataType.FLOAT32);
    private Set<ReduceOp.Kind> reductions = EnumSet.of(ReduceOp.Kind.SUM);
    private Set<Integer> peers = new TreeSet<>();
    private boolean captured;
    private boolean wrapped;
    private int iterations = 12_000;
    private long mostOperations = 240_000;

    private Builder() {}

    /** The operations to run; default all. */
    public Builder operations(Operation first, Operation... more) {
      operations = EnumSet.of(Require.present(first, "operation"), present(more, "operation"));
      return this;
    }

    /**
     * Sizes in bytes of the larger of a rank's send and receive data, rounded to whole elements;
     * default 8, 4096 and 65536.
     *
     * @throws InvalidArgumentException if there is none, or one is negative
     */
    public Builder sizes(long... bytes) {
      if (bytes == null || bytes.length == 0 || Arrays.stream(bytes).anyMatch(b -> b < 0)) {
        throw new InvalidArgumentException(
            "warm-up: the sizes are " + Arrays.toString(bytes), "name sizes of 0 or more bytes");
      }
      sizes = new TreeSet<>(Arrays.stream(bytes).boxed().toList());
      return this;
    }

    /** Data types; default {@link DataType#FLOAT32}. */
    public Builder types(DataType first, DataType... more) {
      types = EnumSet.of(Require.present(first, "type"), present(more, "type"));
      return this;
    }

    /** Reductions; default {@link ReduceOp.Kind#SUM}. */
    public Builder reductions(ReduceOp.Kind first, ReduceOp.Kind... more) {
      reductions = EnumSet.of(Require.present(first, "reduction"), present(more, "reduction"));
      return this;
    }

    /**
     * The ranks with which every rank exchanges messages, in both directions, for example the
     * centre of a star. By default, and without arguments, every rank exchanges with every other.
     */
    public Builder peers(int... ranks) {
      peers = new TreeSet<>(Arrays.stream(Require.present(ranks, "peers")).boxed().toList());
      return this;
    }

    /** Whether each operation is also captured and launched as a graph; default false. */
    public Builder captured(boolean value) {
      captured = value;
      return this;
    }

    /** Whether each operation also runs on wrapped memory; default false. */
    public Builder wrapped(boolean value) {
      wrapped = value;
      return this;
    }

    /**
     * How often a small operation runs; default 12,000, after which the JVM has compiled it.
     *
     * @throws InvalidArgumentException if it is less than 1
     */
    public Builder iterations(int count) {
      iterations = (int) positive("iterations", count);
      return this;
    }

    /**
     * The most operations to run in total, divided equally; default 240,000, which take about a
     * second if each rank has a processor.
     *
     * @throws InvalidArgumentException if it is less than 1
     */
    public Builder mostOperations(long count) {
      mostOperations = positive("mostOperations", count);
      return this;
    }

    /** Builds the plan. */
    public WarmUp build() {
      return new WarmUp(copy());
    }

    private Builder copy() {
      Builder copy = new Builder();
      copy.operations = EnumSet.copyOf(operations);
      copy.sizes = new TreeSet<>(sizes);
      copy.types = EnumSet.copyOf(types);
      copy.reductions = EnumSet.copyOf(reductions);
      copy.peers = new TreeSet<>(peers);
      copy.captured = captured;
      copy.wrapped = wrapped;
      copy.iterations = iterations;
      copy.mostOperations = mostOperations;
      return copy;
    }

    private static long positive(String name, long value) {
      if (value < 1) {
        throw new InvalidArgumentException("warm-up: " + name + " is " + value, "use 1 or more");
      }
      return value;
    }

    private static <T> T[] present(T[] more, String name) {
      for (T one : Require.present(more, name)) {
        Require.present(one, name);
      }
      return more;
    }
  }
}
