package io.nccl4j.bench.selftest;

import io.nccl4j.Communicator;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.bench.data.Block;
import io.nccl4j.bench.data.TestData;
import io.nccl4j.bench.program.Blocks;
import io.nccl4j.bench.program.Case;
import io.nccl4j.bench.program.Collective;
import io.nccl4j.bench.program.PreparedCall;
import io.nccl4j.bench.program.Program;
import io.nccl4j.bench.program.RankCall;
import io.nccl4j.bench.program.Shape;
import java.util.ArrayList;
import java.util.List;
import java.util.function.IntToLongFunction;
import java.util.stream.IntStream;
import java.util.stream.LongStream;

/**
 * An operation of a communicator as the self test runs it. Its size is the elements of one block;
 * the v-forms add a few, or send nothing, by rank. Behind what is received some elements must stay
 * as they are.
 */
final class SelfTestOperation extends Program {
  /** Elements behind the received ones that must not change. */
  static final int GUARD = 16;

  /** How much more than the size the largest block of a v-form takes. */
  private static final int MOST_MORE = 3;

  private static final long GUARD_SEED = 17;

  private final Collective collective;
  private final Blocks blocks;

  SelfTestOperation(Collective collective) {
    super(collective.label(), collective.label(), collective.label());
    this.collective = collective;
    this.blocks = collective.blocks();
  }

  Collective collective() {
    return collective;
  }

  @Override
  public boolean reduces() {
    return collective.reduces();
  }

  @Override
  public boolean rooted() {
    return collective.rooted();
  }

  @Override
  public boolean inPlace() {
    // A block that is reduced in place lies behind blocks of other sizes, not in a slot.
    return collective.inPlace() && !(collective.reduces() && collective.varies());
  }

  @Override
  public Shape shape(long elements, int elementBytes, int nranks) {
    long block = slot(elements);
    long all = nranks * block;
    return switch (blocks) {
      case NONE -> new Shape(0, GUARD, 0, 0, 0);
      case EVEN, RING -> new Shape(block, block + GUARD, elements, 0, 0);
      case GATHERED -> new Shape(block, all + GUARD, elements, block, 0);
      case SCATTERED -> new Shape(all, block + GUARD, elements, 0, block);
      case EXCHANGED -> new Shape(all, all + GUARD, elements, 0, 0);
    };
  }

  /** Elements from the start of a block to that of the next one. */
  private long slot(long count) {
    return collective.varies() ? count + MOST_MORE : count;
  }

  /** Elements that {@code from} sends to {@code to}. */
  private long part(int from, int to, long count) {
    if (!collective.varies()) {
      return count;
    }
    int more =
        switch (blocks) {
              case GATHERED -> from;
              case SCATTERED -> to;
              default -> from + 2 * to;
            }
            % (MOST_MORE + 1);
    return more == MOST_MORE ? 0 : count + more;
  }

  private static long[] each(int nranks, IntToLongFunction value) {
    return IntStream.range(0, nranks).mapToLong(value).toArray();
  }

  @Override
  public PreparedCall prepare(
      Communicator communicator,
      DeviceBuffer send,
      DeviceBuffer recv,
      Case size,
      ReduceOp op,
      Stream stream) {
    int n = size.nranks();
    int rank = communicator.rank();
    long count = size.shape().count();
    long[] slots = each(n, peer -> peer * slot(count));
    RankCall.Sizes sizes =
        new RankCall.Sizes(
            count,
            each(n, to -> part(rank, to, count)),
            slots,
            each(n, from -> part(from, rank, count)),
            slots);
    RankCall call =
        new RankCall(communicator, send, recv, sizes, size.type(), op, size.root(), stream, true);
    return collective.prepare(call);
  }

  @Override
  public double busFactor(int nranks) {
    return collective.busFactor(nranks);
  }

  @Override
  public List<Block> sent(Case size, TestData data, int rank, long seed) {
    if (!collective.sends(rank, size.root())) {
      return List.of();
    }
    if (reduces()) {
      long all = blocks == Blocks.SCATTERED ? before(size.nranks(), size) : size.shape().count();
      return List.of(new Block(data.input(rank, seed), 0, all));
    }
    List<Block> sent = new ArrayList<>();
    switch (blocks) {
      case NONE -> {}
      case EVEN, RING, GATHERED -> sent.add(moved(size, rank, 0, seed));
      case SCATTERED, EXCHANGED -> {
        for (int to = 0; to < size.nranks(); to++) {
          addSlot(sent, size, moved(size, rank, to, seed), seed);
        }
      }
    }
    return sent;
  }

  @Override
  public List<Block> expected(Case size, TestData data, int rank, long seed) {
    if (!collective.receives(rank, size.root())) {
      return List.of();
    }
    int n = size.nranks();
    if (reduces()) {
      boolean scattered = blocks == Blocks.SCATTERED;
      long first = scattered ? before(rank, size) : 0;
      return List.of(new Block(data.reduced(seed), first, part(0, rank, size.shape().count())));
    }
    List<Block> received = new ArrayList<>();
    switch (blocks) {
      case NONE -> {}
      case EVEN -> received.add(moved(size, size.root(), 0, seed));
      case RING -> received.add(moved(size, (rank + n - 1) % n, 0, seed));
      case SCATTERED -> received.add(moved(size, size.root(), rank, seed));
      case GATHERED, EXCHANGED -> {
        int to = blocks == Blocks.GATHERED ? 0 : rank;
        for (int from = 0; from < n; from++) {
          addSlot(received, size, moved(size, from, to, seed), seed);
        }
      }
    }
    return received;
  }

  /** What must stay behind the received elements, wherever nothing else lies there. */
  static Block guard(Case size, long seed) {
    return new Block(TestData.bits(size.type(), seed + GUARD_SEED), 0, GUARD, true);
  }

  /** Elements of the blocks in front of a rank's. */
  private long before(int rank, Case size) {
    return LongStream.of(each(rank, to -> part(0, to, size.shape().count()))).sum();
  }

  /** What one rank sends to another: bits that no other pair has there. */
  private Block moved(Case size, int from, int to, long seed) {
    long count = size.shape().count();
    long first = ((long) from * size.nranks() + to) * (count + 2 * MOST_MORE + 1);
    return new Block(TestData.bits(size.type(), seed), first, part(from, to, count));
  }

  /** Adds a block and what is left of its slot, which must stay as it is. */
  private void addSlot(List<Block> list, Case size, Block block, long seed) {
    list.add(block);
    if (collective.varies()) {
      long rest = slot(size.shape().count()) - block.count();
      list.add(new Block(TestData.bits(size.type(), seed + GUARD_SEED), 1, rest, true));
    }
  }
}
