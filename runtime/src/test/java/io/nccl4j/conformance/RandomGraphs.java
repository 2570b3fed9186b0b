package io.nccl4j.conformance;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Event;
import io.nccl4j.ExecutableGraph;
import io.nccl4j.Graph;
import io.nccl4j.Group;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.lang.foreign.Arena;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;

/**
 * One rank of a random program: all ranks do the same operations, each in its own way: plainly, in
 * groups, captured, by updating an earlier graph, with discarded groups in between. A model that
 * does one operation after the other says what must come out.
 */
final class RandomGraphs implements AutoCloseable {
  private static final int BUFFERS = 5;
  private static final int[] COUNTS = {1, 7, 60, 126, 127, 1000, 20_000};
  private static final int LENGTH = 20_000;

  /** What can be done with buffers of ints. */
  private enum What {
    ALL_REDUCE,
    BROADCAST,
    REDUCE,
    ALL_GATHER,
    REDUCE_SCATTER,
    ALL_TO_ALL,
    /** In a group, each rank sends to the next one. */
    RING,
    /** Each rank but the first receives, then each but the last sends what it had before. */
    CHAIN,
    COPY,
    FILL;

    /** Whether a buffer has a block for each rank. */
    boolean hasBlocks() {
      return this == ALL_GATHER || this == REDUCE_SCATTER || this == ALL_TO_ALL;
    }

    boolean canBeInPlace() {
      return this == ALL_REDUCE || this == BROADCAST || this == REDUCE || this == FILL;
    }
  }

  /** One operation, the same on all ranks. */
  private record Step(What what, int from, int to, int count, int root) {
    boolean local() {
      return what == What.COPY || what == What.FILL;
    }
  }

  /** Operations that are submitted together, and how often. */
  private record Chunk(List<Step> steps, int times) {
    /** Whether no operation needs the result of another, so that they can start together. */
    boolean independent() {
      int used = 0;
      for (Step step : steps) {
        int buffers = 1 << step.from | 1 << step.to;
        if (step.local() || (used & buffers) != 0) {
          return false;
        }
        used |= buffers;
      }
      return true;
    }

    /** What a graph of it has in common with all that can take its place. */
    String shape() {
      StringBuilder shape = new StringBuilder();
      for (Step step : steps) {
        shape.append(step.what);
        if (step.what == What.BROADCAST || step.what == What.REDUCE) {
          shape.append(step.root);
        }
        shape.append(' ');
      }
      return shape.toString();
    }
  }

  private final Communicator communicator;
  private final int rank;
  private final int nranks;
  private final Random program;
  private final Random way;
  private final boolean captures;
  private final List<DeviceBuffer> buffers = new ArrayList<>();
  private final List<Stream> streams = new ArrayList<>();
  private final int[][][] model;
  private final Map<String, ExecutableGraph> graphs = new HashMap<>();
  private final Event event;
  private Stream stream;

  /**
   * A rank of the program that {@code seed} stands for.
   *
   * @param captures whether it uses graphs, too
   */
  RandomGraphs(Communicator communicator, long seed, boolean captures) {
    this.communicator = communicator;
    this.captures = captures;
    rank = communicator.rank();
    nranks = communicator.nranks();
    program = new Random(seed);
    // NCCL wants the same groups and graphs on all ranks.
    way = new Random(seed * 31 + (TestBackend.BACKEND == Backend.HOST ? rank : 0));
    model = new int[nranks][BUFFERS][LENGTH];
    for (int[][] of : model) {
      for (int[] buffer : of) {
        java.util.Arrays.setAll(buffer, i -> program.nextInt());
      }
    }
    for (int i = 0; i < BUFFERS; i++) {
      // Memory of the program's own goes other ways between processes.
      buffers.add(
          way.nextInt(4) == 0 && TestBackend.BACKEND == Backend.HOST
              ? communicator.device().wrap(Arena.ofAuto().allocate((long) LENGTH * Integer.BYTES))
              : communicator.device().allocate(DataType.INT32, LENGTH));
      buffers.get(i).copyFrom(model[rank][i]);
    }
    for (int i = 0; i < 3; i++) {
      streams.add(communicator.device().newStream());
    }
    event = communicator.device().newEvent();
    stream = streams.get(0);
  }

  /** Goes through so many chunks. */
  void run(int chunks) {
    for (int i = 0; i < chunks; i++) {
      Chunk chunk = chunk();
      for (int k = 0; k < chunk.times; k++) {
        chunk.steps.forEach(this::apply);
      }
      changeStream();
      submit(chunk);
      if (program.nextInt(10) == 0) {
        stream.synchronize();
        compare(i);
      }
    }
    stream.synchronize();
    compare(chunks);
  }

  private Chunk chunk() {
    List<Step> steps = new ArrayList<>();
    int length = 1 + program.nextInt(5);
    for (int i = 0; i < length; i++) {
      What what = What.values()[program.nextInt(What.values().length)];
      int from = program.nextInt(BUFFERS);
      boolean inPlace = program.nextBoolean() && what.canBeInPlace();
      int to = inPlace ? from : (from + 1 + program.nextInt(BUFFERS - 1)) % BUFFERS;
      int most = what.hasBlocks() ? LENGTH / nranks : LENGTH;
      int count = Math.min(COUNTS[program.nextInt(COUNTS.length)], most);
      steps.add(new Step(what, from, to, count, program.nextInt(nranks)));
    }
    return new Chunk(steps, program.nextInt(3) == 0 ? 1 + program.nextInt(12) : 1);
  }

  /** Later work goes to another stream sometimes, behind what is queued. */
  private void changeStream() {
    if (way.nextInt(4) == 0) {
      Stream next = streams.get(way.nextInt(streams.size()));
      if (next != stream) {
        stream.record(event);
        next.waitFor(event);
        stream = next;
      }
    }
  }

  private void submit(Chunk chunk) {
    switch (way.nextInt(captures ? 6 : 2)) {
      case 0 -> {
        discard(chunk);
        repeat(chunk, () -> chunk.steps.forEach(this::call));
      }
      case 1 -> {
        boolean grouped = chunk.independent();
        repeat(
            chunk,
            () -> {
              if (grouped) {
                Group.run(() -> chunk.steps.forEach(this::call));
              } else {
                chunk.steps.forEach(this::call);
              }
            });
      }
      case 2 -> {
        try (Graph graph = capture(chunk, true);
            ExecutableGraph executable = graph.instantiate()) {
          repeat(chunk, () -> executable.launch(stream));
        }
      }
      case 3 -> {
        // Half plainly, half by a graph.
        try (Graph graph = capture(chunk, false);
            ExecutableGraph executable = graph.instantiate()) {
          int[] done = {0};
          repeat(
              chunk,
              () -> {
                if (done[0]++ % 2 == 0) {
                  executable.launch(stream);
                } else {
                  chunk.steps.forEach(this::call);
                }
              });
        }
      }
      default -> {
        try (Graph graph = capture(chunk, way.nextBoolean())) {
          ExecutableGraph executable = graphs.get(chunk.shape());
          if (executable == null) {
            executable = graph.instantiate();
            graphs.put(chunk.shape(), executable);
          } else {
            executable.update(graph);
          }
          for (int i = 0; i < chunk.times; i++) {
            executable.launch(stream);
          }
        }
      }
    }
  }

  private static void repeat(Chunk chunk, Runnable calls) {
    for (int i = 0; i < chunk.times; i++) {
      calls.run();
    }
  }

  private Graph capture(Chunk chunk, boolean withDiscarded) {
    stream.beginCapture();
    if (withDiscarded) {
      discard(chunk);
    }
    chunk.steps.forEach(this::call);
    return stream.endCapture();
  }

  /** A group with the chunk's operations that is left without a launch. */
  @SuppressWarnings("try")
  private void discard(Chunk chunk) {
    try (Group group = Group.start()) {
      for (Step step : chunk.steps) {
        if (!step.local()) {
          call(step);
        }
      }
    }
  }

  private void call(Step step) {
    DeviceBuffer from = buffers.get(step.from);
    DeviceBuffer to = buffers.get(step.to);
    int count = step.count;
    DataType type = DataType.INT32;
    switch (step.what) {
      case ALL_REDUCE -> communicator.allReduce(from, to, count, type, ReduceOp.SUM, stream);
      case BROADCAST -> communicator.broadcast(from, to, count, type, step.root, stream);
      case REDUCE -> communicator.reduce(from, to, count, type, ReduceOp.MAX, step.root, stream);
      case ALL_GATHER -> communicator.allGather(from, to, count, type, stream);
      case REDUCE_SCATTER ->
          communicator.reduceScatter(from, to, count, type, ReduceOp.SUM, stream);
      case ALL_TO_ALL -> communicator.allToAll(from, to, count, type, stream);
      case RING ->
          Group.run(
              () -> {
                communicator.send(from, count, type, (rank + 1) % nranks, stream);
                communicator.recv(to, count, type, (rank + nranks - 1) % nranks, stream);
              });
      case CHAIN -> {
        if (rank > 0) {
          communicator.recv(to, count, type, rank - 1, stream);
        }
        if (rank < nranks - 1) {
          communicator.send(from, count, type, rank + 1, stream);
        }
      }
      case COPY -> stream.copy(to, from.slice(0, 4L * count));
      case FILL -> stream.fill(to.slice(0, 4L * count), (byte) step.root);
    }
  }

  // ---- what must come out

  private void apply(Step step) {
    int count = step.count;
    int[][] inputs = new int[nranks][];
    for (int k = 0; k < nranks; k++) {
      int length = step.what.hasBlocks() ? count * nranks : count;
      inputs[k] = java.util.Arrays.copyOf(model[k][step.from], length);
    }
    for (int k = 0; k < nranks; k++) {
      int[] to = model[k][step.to];
      switch (step.what) {
        case ALL_REDUCE -> sum(inputs, 0, to, count);
        case REDUCE_SCATTER -> sum(inputs, k * count, to, count);
        case ALL_GATHER -> {
          for (int i = 0; i < nranks; i++) {
            System.arraycopy(inputs[i], 0, to, i * count, count);
          }
        }
        case ALL_TO_ALL -> {
          for (int i = 0; i < nranks; i++) {
            System.arraycopy(inputs[i], k * count, to, i * count, count);
          }
        }
        case CHAIN -> {
          if (k > 0) {
            System.arraycopy(inputs[k - 1], 0, to, 0, count);
          }
        }
        case BROADCAST -> System.arraycopy(inputs[step.root], 0, to, 0, count);
        case REDUCE -> {
          for (int i = 0; i < count && k == step.root; i++) {
            int most = Integer.MIN_VALUE;
            for (int[] input : inputs) {
              most = Math.max(most, input[i]);
            }
            to[i] = most;
          }
        }
        case RING -> System.arraycopy(inputs[(k + nranks - 1) % nranks], 0, to, 0, count);
        case COPY -> System.arraycopy(inputs[k], 0, to, 0, count);
        case FILL -> java.util.Arrays.fill(to, 0, count, step.root * 0x01010101);
      }
    }
  }

  private static void sum(int[][] inputs, int from, int[] to, int count) {
    for (int i = 0; i < count; i++) {
      int sum = 0;
      for (int[] input : inputs) {
        sum += input[from + i];
      }
      to[i] = sum;
    }
  }

  private void compare(int chunk) {
    for (int i = 0; i < BUFFERS; i++) {
      int[] got = buffers.get(i).toInts();
      int at = java.util.Arrays.mismatch(got, model[rank][i]);
      if (at >= 0) {
        throw new AssertionError(
            "after chunk "
                + chunk
                + " element "
                + at
                + " of buffer "
                + i
                + " is "
                + got[at]
                + ", not "
                + model[rank][i][at]);
      }
    }
  }

  @Override
  public void close() {
    graphs.values().forEach(ExecutableGraph::close);
    streams.forEach(Stream::close);
    event.close();
    buffers.forEach(DeviceBuffer::close);
  }
}
