package io.nccl4j.bench.selftest;

import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Group;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.bench.data.Block;
import io.nccl4j.bench.data.TestData;
import io.nccl4j.bench.program.Case;
import io.nccl4j.bench.program.PreparedCall;
import io.nccl4j.bench.program.Program;
import io.nccl4j.bench.program.Shape;
import java.util.ArrayList;
import java.util.List;
import java.util.function.IntToLongFunction;
import java.util.stream.LongStream;

/**
 * An operation of a communicator as the self test runs it. Its size is the elements of one block;
 * the v-forms add a few, or send nothing, by rank. Behind what is received some elements must stay
 * as they are.
 */
final class SelfTestOperation extends Program {
  /** What is called. */
  enum Kind {
    ALL_REDUCE("allReduce"),
    REDUCE("reduce"),
    REDUCE_SCATTER("reduceScatter"),
    REDUCE_SCATTER_V("reduceScatterV"),
    BROADCAST("broadcast"),
    ALL_GATHER("allGather"),
    ALL_GATHER_V("allGatherV"),
    ALL_TO_ALL("allToAll"),
    ALL_TO_ALL_V("allToAllV"),
    GATHER("gather"),
    GATHER_V("gatherV"),
    SCATTER("scatter"),
    SCATTER_V("scatterV"),
    SEND_RECV("send, recv"),
    EXCHANGE("send, recv, all pairs"),
    BARRIER("barrier");

    private final String label;

    Kind(String label) {
      this.label = label;
    }

    /** Its name for people. */
    String label() {
      return label;
    }
  }

  /** Elements behind the received ones that must not change. */
  static final int GUARD = 16;

  /** How much more than the size the largest block of a v-form takes. */
  private static final int MOST_MORE = 3;

  private static final long GUARD_SEED = 17;

  private final Kind kind;

  SelfTestOperation(Kind kind) {
    super(kind.label(), kind.label(), kind.label());
    this.kind = kind;
  }

  Kind kind() {
    return kind;
  }

  @Override
  public boolean reduces() {
    return kind.compareTo(Kind.REDUCE_SCATTER_V) <= 0;
  }

  @Override
  public boolean rooted() {
    return switch (kind) {
      case REDUCE, BROADCAST, GATHER, GATHER_V, SCATTER, SCATTER_V -> true;
      default -> false;
    };
  }

  @Override
  public boolean inPlace() {
    return switch (kind) {
      case REDUCE_SCATTER_V, ALL_TO_ALL, ALL_TO_ALL_V, SEND_RECV, EXCHANGE, BARRIER -> false;
      default -> true;
    };
  }

  @Override
  public Shape shape(long elements, int elementBytes, int nranks) {
    long slot = elements + MOST_MORE;
    return switch (kind) {
      case ALL_REDUCE, REDUCE, BROADCAST, SEND_RECV ->
          new Shape(elements, elements + GUARD, elements, 0, 0);
      case ALL_GATHER, GATHER ->
          new Shape(elements, nranks * elements + GUARD, elements, elements, 0);
      case REDUCE_SCATTER, SCATTER ->
          new Shape(nranks * elements, elements + GUARD, elements, 0, elements);
      case ALL_TO_ALL -> new Shape(nranks * elements, nranks * elements + GUARD, elements, 0, 0);
      case ALL_GATHER_V, GATHER_V -> new Shape(slot, nranks * slot + GUARD, elements, slot, 0);
      case SCATTER_V -> new Shape(nranks * slot, slot + GUARD, elements, 0, slot);
      case REDUCE_SCATTER_V -> new Shape(nranks * slot, slot + GUARD, elements, 0, 0);
      case ALL_TO_ALL_V, EXCHANGE ->
          new Shape(nranks * slot, nranks * slot + GUARD, elements, 0, 0);
      case BARRIER -> new Shape(0, GUARD, 0, 0, 0);
    };
  }

  /** Elements that {@code from} sends to {@code to} in a v-form. */
  private static long part(int from, int to, long count) {
    int more = (from + 2 * to) % (MOST_MORE + 1);
    return more == MOST_MORE ? 0 : count + more;
  }

  private static long[] parts(int nranks, IntToLongFunction part) {
    return LongStream.range(0, nranks).map(j -> part.applyAsLong((int) j)).toArray();
  }

  private static long[] slots(int nranks, long count) {
    return parts(nranks, j -> j * (count + MOST_MORE));
  }

  @Override
  public PreparedCall prepare(
      Communicator communicator,
      DeviceBuffer send,
      DeviceBuffer recv,
      Case size,
      ReduceOp op,
      Stream stream) {
    long count = size.shape().count();
    return stage -> launch(communicator, send, recv, count, size.type(), op, size.root(), stream);
  }

  private void launch(
      Communicator c,
      DeviceBuffer send,
      DeviceBuffer recv,
      long count,
      DataType type,
      ReduceOp op,
      int root,
      Stream stream) {
    int n = c.nranks();
    int rank = c.rank();
    boolean isRoot = rank == root;
    long[] slots = slots(n, count);
    switch (kind) {
      case ALL_REDUCE -> c.allReduce(send, recv, count, type, op, stream);
      case REDUCE -> c.reduce(send, isRoot ? recv : null, count, type, op, root, stream);
      case REDUCE_SCATTER -> c.reduceScatter(send, recv, count, type, op, stream);
      case REDUCE_SCATTER_V ->
          c.reduceScatterV(send, recv, parts(n, j -> part(j, 0, count)), type, op, stream);
      case BROADCAST -> c.broadcast(isRoot ? send : null, recv, count, type, root, stream);
      case ALL_GATHER -> c.allGather(send, recv, count, type, stream);
      case ALL_GATHER_V ->
          c.allGatherV(send, recv, parts(n, j -> part(j, 0, count)), slots, type, stream);
      case ALL_TO_ALL -> c.allToAll(send, recv, count, type, stream);
      case ALL_TO_ALL_V ->
          c.allToAllV(
              send,
              parts(n, j -> part(rank, j, count)),
              slots,
              recv,
              parts(n, j -> part(j, rank, count)),
              slots,
              type,
              stream);
      case GATHER -> c.gather(send, isRoot ? recv : null, count, type, root, stream);
      case GATHER_V -> {
        long[] counts = isRoot ? parts(n, j -> part(j, 0, count)) : null;
        DeviceBuffer to = isRoot ? recv : null;
        c.gatherV(
            send, part(rank, 0, count), to, counts, isRoot ? slots : null, type, root, stream);
      }
      case SCATTER -> c.scatter(isRoot ? send : null, recv, count, type, root, stream);
      case SCATTER_V -> {
        long[] counts = isRoot ? parts(n, j -> part(j, 0, count)) : null;
        DeviceBuffer from = isRoot ? send : null;
        c.scatterV(
            from, counts, isRoot ? slots : null, recv, part(rank, 0, count), type, root, stream);
      }
      case SEND_RECV ->
          Group.run(
              () -> {
                c.send(send, count, type, (rank + 1) % n, stream);
                c.recv(recv, count, type, (rank + n - 1) % n, stream);
              });
      case EXCHANGE ->
          Group.run(
              () -> {
                int size = type.byteSize();
                for (int peer = 0; peer < n; peer++) {
                  c.recv(
                      recv.slice(slots[peer] * size), part(peer, rank, count), type, peer, stream);
                  c.send(
                      send.slice(slots[peer] * size), part(rank, peer, count), type, peer, stream);
                }
              });
      case BARRIER -> c.barrier(stream);
    }
  }

  @Override
  public double busFactor(int nranks) {
    return 1;
  }

  @Override
  public List<Block> sent(Case size, TestData data, int rank, long seed) {
    int n = size.nranks();
    long count = size.shape().count();
    boolean isRoot = rank == size.root();
    List<Block> blocks = new ArrayList<>();
    switch (kind) {
      case ALL_REDUCE, REDUCE -> blocks.add(new Block(data.input(rank, seed), 0, count));
      case REDUCE_SCATTER -> blocks.add(new Block(data.input(rank, seed), 0, n * count));
      case REDUCE_SCATTER_V ->
          blocks.add(new Block(data.input(rank, seed), 0, before(n, n, count)));
      case BROADCAST -> {
        if (isRoot) {
          blocks.add(moved(size, rank, 0, count, seed));
        }
      }
      case ALL_GATHER, GATHER, SEND_RECV -> blocks.add(moved(size, rank, 0, count, seed));
      case ALL_GATHER_V, GATHER_V -> blocks.add(moved(size, rank, 0, part(rank, 0, count), seed));
      case SCATTER, ALL_TO_ALL -> {
        for (int to = 0; to < n && (isRoot || kind == Kind.ALL_TO_ALL); to++) {
          blocks.add(moved(size, rank, to, count, seed));
        }
      }
      case SCATTER_V -> {
        for (int to = 0; to < n && isRoot; to++) {
          slot(blocks, size, moved(size, rank, to, part(to, 0, count), seed), seed);
        }
      }
      case ALL_TO_ALL_V, EXCHANGE -> {
        for (int to = 0; to < n; to++) {
          slot(blocks, size, moved(size, rank, to, part(rank, to, count), seed), seed);
        }
      }
      case BARRIER -> {}
    }
    return blocks;
  }

  @Override
  public List<Block> expected(Case size, TestData data, int rank, long seed) {
    int n = size.nranks();
    int root = size.root();
    long count = size.shape().count();
    boolean isRoot = rank == root;
    List<Block> blocks = new ArrayList<>();
    switch (kind) {
      case ALL_REDUCE -> blocks.add(new Block(data.reduced(seed), 0, count));
      case REDUCE -> {
        if (isRoot) {
          blocks.add(new Block(data.reduced(seed), 0, count));
        }
      }
      case REDUCE_SCATTER -> blocks.add(new Block(data.reduced(seed), rank * count, count));
      case REDUCE_SCATTER_V ->
          blocks.add(new Block(data.reduced(seed), before(rank, n, count), part(rank, 0, count)));
      case BROADCAST -> blocks.add(moved(size, root, 0, count, seed));
      case SEND_RECV -> blocks.add(moved(size, (rank + n - 1) % n, 0, count, seed));
      case ALL_GATHER, GATHER -> {
        for (int from = 0; from < n && (isRoot || kind == Kind.ALL_GATHER); from++) {
          blocks.add(moved(size, from, 0, count, seed));
        }
      }
      case ALL_GATHER_V, GATHER_V -> {
        for (int from = 0; from < n && (isRoot || kind == Kind.ALL_GATHER_V); from++) {
          slot(blocks, size, moved(size, from, 0, part(from, 0, count), seed), seed);
        }
      }
      case ALL_TO_ALL -> {
        for (int from = 0; from < n; from++) {
          blocks.add(moved(size, from, rank, count, seed));
        }
      }
      case ALL_TO_ALL_V, EXCHANGE -> {
        for (int from = 0; from < n; from++) {
          slot(blocks, size, moved(size, from, rank, part(from, rank, count), seed), seed);
        }
      }
      case SCATTER -> blocks.add(moved(size, root, rank, count, seed));
      case SCATTER_V -> blocks.add(moved(size, root, rank, part(rank, 0, count), seed));
      case BARRIER -> {}
    }
    return blocks;
  }

  /** What must stay behind the received elements, wherever nothing else lies there. */
  static Block guard(Case size, long seed) {
    return new Block(TestData.bits(size.type(), seed + GUARD_SEED), 0, GUARD, true);
  }

  /** Elements of the blocks of a v-form in front of a rank's. */
  private static long before(int rank, int nranks, long count) {
    return LongStream.range(0, Math.min(rank, nranks)).map(j -> part((int) j, 0, count)).sum();
  }

  /** What one rank sends to another: bits that no other pair has there. */
  private static Block moved(Case size, int from, int to, long count, long seed) {
    long first = ((long) from * size.nranks() + to) * (size.shape().count() + 2 * MOST_MORE + 1);
    return new Block(TestData.bits(size.type(), seed), first, count);
  }

  /** Adds a block and what is left of its slot, which must stay as it is. */
  private static void slot(List<Block> blocks, Case size, Block block, long seed) {
    blocks.add(block);
    long rest = size.shape().count() + MOST_MORE - block.count();
    blocks.add(new Block(TestData.bits(size.type(), seed + GUARD_SEED), 1, rest, true));
  }
}
