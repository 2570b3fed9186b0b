package io.nccl4j.bench.selftest;

import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import io.nccl4j.bench.data.Mix;
import io.nccl4j.bench.program.Blocks;
import io.nccl4j.bench.program.Case;
import io.nccl4j.bench.program.Collective;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;

/**
 * What happens in an episode of the soak: the life of a communicator. It follows from the seed and
 * the episode's number alone, so that all ranks do the same; what need not be the same on all of
 * them (memory, waits, the order of closing) each rank draws for itself.
 *
 * @param number from 0
 * @param nranks ranks of the world
 * @param together whether ranks of one process join by {@code initAll} instead of an id
 * @param fault what goes wrong
 * @param steps in order
 */
record SoakEpisode(
    int number, int nranks, boolean together, SoakFault fault, List<SoakEpisode.Step> steps) {
  private static final int MOST_STEPS = 8;
  private static final int MOST_CALLS = 4;
  private static final int MOST_FAMILIES = 4;
  private static final int MOST_LAUNCHES = 4;

  /** Streams of a rank. */
  static final int STREAMS = 3;

  /** Bytes of all blocks of a step; one call may exceed it. */
  private static final long STEP_BYTES = 2 << 20;

  private static final int MOST_BYTES = 1 << 20;

  /** Where the host engine changes its ways: messages, outbox, lanes and chunks. */
  private static final int[] EDGES = {504, 1536, 4096, 64 << 10, 256 << 10};

  private static final int NEAR_EDGE = 16;
  private static final Duration ENOUGH = Duration.ofSeconds(60);

  /** The deadline of operations where a process is stopped for longer. */
  private static final Duration SHORT = Duration.ofSeconds(2);

  /** Something that all ranks do. */
  sealed interface Step {}

  /**
   * Operations that run at the same time, and are checked when all are complete.
   *
   * @param way how they are issued
   * @param launches of the graph, if it is one
   * @param stream where a capture begins
   */
  record Operate(Way way, int launches, int stream, List<Call> calls) implements Step {}

  /**
   * A family of communicators comes into being.
   *
   * @param parent the family that is split
   * @param colors of the ranks of the world
   * @param keys of the ranks of the world
   */
  record Split(int parent, List<Integer> colors, List<Integer> keys) implements Step {}

  /** A family is closed. */
  record Close(int family) implements Step {}

  /** How operations are issued. */
  enum Way {
    PLAIN,
    GROUP,
    /** Captured, and launched again and again. */
    GRAPH,
    /** The same, as a group within the capture. */
    GRAPH_OF_GROUP,
    /** The first half captured, and the others issued between two launches. */
    MIXED;

    boolean captures() {
      return compareTo(GRAPH) >= 0;
    }
  }

  /**
   * One operation.
   *
   * @param family its communicators: 0 is the world, the others are made by splits, in this order
   * @param bytes of a block, on every rank
   * @param root to be taken modulo the number of ranks
   * @param copied whether another stream copies the result, after an event
   * @param seed of its data
   */
  record Call(
      int family,
      Collective collective,
      DataType type,
      ReduceOp.Kind op,
      long bytes,
      int root,
      boolean inPlace,
      int stream,
      boolean copied,
      long seed) {
    /** It as a program of the measuring engine. */
    SelfTestOperation operation() {
      return new SelfTestOperation(collective);
    }

    /** It on so many ranks. */
    Case on(int nranks) {
      SelfTestOperation operation = operation();
      return new Case(
          operation,
          type,
          op,
          operation.rooted() ? root % nranks : -1,
          nranks,
          operation.shape(bytes / type.byteSize(), type.byteSize(), nranks));
    }

    @Override
    public String toString() {
      return collective.label()
          + (operation().reduces() ? " " + op.label() : "")
          + " of "
          + bytes / type.byteSize()
          + " "
          + type.label()
          + (inPlace ? ", in place" : "")
          + (copied ? ", copied" : "")
          + ", family "
          + family
          + ", stream "
          + stream;
    }
  }

  /** The episode with this number. */
  static SoakEpisode of(Soak.Settings settings, int number) {
    return new Draw(settings, number).episode();
  }

  /** How long its operations may take. */
  Duration operationTimeout() {
    return fault.kind() == SoakFault.Kind.STOP_LONG ? SHORT : ENOUGH;
  }

  /** Whether there is more than the world. */
  boolean hasFamilies() {
    return steps.stream().anyMatch(Split.class::isInstance);
  }

  private static final class Draw {
    private final Soak.Settings settings;
    private final int number;
    private final SplittableRandom random;
    private final int nranks;

    /** The open families, by number. */
    private final List<Integer> open = new ArrayList<>(List.of(0));

    private int families = 1;

    Draw(Soak.Settings settings, int number) {
      this.settings = settings;
      this.number = number;
      this.random = new SplittableRandom(Mix.of(settings.seed(), number));
      this.nranks = settings.ranks();
    }

    SoakEpisode episode() {
      boolean together = settings.processes() == 1 && random.nextBoolean();
      int length = 1 + random.nextInt(MOST_STEPS);
      SoakFault fault = SoakFault.draw(random, settings, length, SHORT);
      List<Step> steps = new ArrayList<>();
      for (int i = 0; i < length; i++) {
        steps.add(step());
      }
      return new SoakEpisode(number, nranks, together, fault, List.copyOf(steps));
    }

    private Step step() {
      int what = random.nextInt(10);
      if (what == 0 && families < MOST_FAMILIES) {
        return split();
      }
      if (what == 1 && open.size() > 1) {
        return new Close(open.remove(1 + random.nextInt(open.size() - 1)));
      }
      return operate();
    }

    private Step split() {
      int parent = open.get(random.nextInt(open.size()));
      int most = 1 + random.nextInt(3);
      List<Integer> colors = new ArrayList<>();
      List<Integer> keys = new ArrayList<>();
      for (int rank = 0; rank < nranks; rank++) {
        colors.add(random.nextInt(8) == 0 ? Communicator.NO_COLOR : random.nextInt(most));
        keys.add(random.nextInt(3));
      }
      open.add(families++);
      return new Split(parent, List.copyOf(colors), List.copyOf(keys));
    }

    private Step operate() {
      Way way = Way.values()[random.nextInt(Way.values().length)];
      int launches = 1 + random.nextInt(MOST_LAUNCHES);
      int stream = random.nextInt(STREAMS);
      List<Call> calls = new ArrayList<>();
      long bytes = 0;
      int count = 1 + random.nextInt(MOST_CALLS);
      for (int i = 0; i < count && bytes < STEP_BYTES; i++) {
        Call call = call(way.captures());
        bytes += call.bytes();
        calls.add(call);
      }
      return new Operate(way, launches, stream, List.copyOf(calls));
    }

    private Call call(boolean captured) {
      Collective collective = pick(Collective.values());
      SelfTestOperation operation = new SelfTestOperation(collective);
      DataType type = pick(DataType.values());
      ReduceOp.Kind op = operation.reduces() ? pick(ReduceOp.Kind.values()) : ReduceOp.Kind.SUM;
      // What is reduced in place is another input at the next launch.
      boolean inPlace =
          random.nextInt(3) == 0 && operation.inPlace() && !(captured && operation.reduces());
      long bytes = collective.blocks() == Blocks.NONE ? 0 : bytes();
      return new Call(
          open.get(random.nextInt(open.size())),
          collective,
          type,
          op,
          bytes / type.byteSize() * type.byteSize(),
          random.nextInt(nranks),
          inPlace,
          random.nextInt(STREAMS),
          !captured && random.nextInt(4) == 0,
          random.nextLong() >>> 16);
    }

    private long bytes() {
      return switch (random.nextInt(10)) {
        case 0, 1 -> random.nextInt(64);
        case 2, 3, 4 -> random.nextInt(2048);
        case 5, 6 ->
            EDGES[random.nextInt(EDGES.length)] + random.nextInt(-NEAR_EDGE, NEAR_EDGE + 1);
        case 7, 8 -> random.nextInt(64 << 10);
        default -> random.nextInt(MOST_BYTES);
      };
    }

    private <T> T pick(T[] values) {
      return values[random.nextInt(values.length)];
    }
  }
}
