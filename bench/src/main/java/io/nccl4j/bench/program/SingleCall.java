package io.nccl4j.bench.program;

import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.bench.data.Block;
import io.nccl4j.bench.data.Pattern;
import io.nccl4j.bench.data.TestData;
import java.util.ArrayList;
import java.util.List;

/**
 * A program whose operation is one call, or one group of calls, that needs nothing made before.
 *
 * <p>Content: all ranks' data is one pattern, of which a rank sends, and gets, what lies where in
 * place its data would lie; or the reduction of as many patterns as there are ranks.
 */
class SingleCall extends Program {
  /** Makes the operation of one rank. */
  interface Call {
    /** See {@link Communicator}; what the operation does not take is ignored. */
    PreparedCall on(
        Communicator communicator,
        DeviceBuffer send,
        DeviceBuffer recv,
        long count,
        DataType type,
        ReduceOp op,
        int root,
        Stream stream);
  }

  /** What only the root does. */
  enum Root {
    NONE,
    SENDS,
    RECEIVES
  }

  private final boolean reduces;
  private final Root part;
  private final Blocks blocks;
  private final Call call;

  /** A program; see {@link Program}. */
  SingleCall(
      String command,
      String testsName,
      String summary,
      boolean reduces,
      Root part,
      Blocks blocks,
      Call call) {
    super(command, testsName, summary);
    this.reduces = reduces;
    this.part = part;
    this.blocks = blocks;
    this.call = call;
  }

  /** Every rank gets the elements of all ranks, in rank order. */
  static SingleCall allGather() {
    return new SingleCall(
        "allgather",
        "all_gather_perf",
        "every rank gets the elements of all ranks",
        false,
        Root.NONE,
        Blocks.GATHERED,
        (communicator, send, recv, count, type, op, root, stream) ->
            stage -> communicator.allGather(send, recv, count, type, stream));
  }

  /** Every rank gets its block of the reduction of all ranks' data. */
  static SingleCall reduceScatter() {
    return new SingleCall(
        "reducescatter",
        "reduce_scatter_perf",
        "each rank gets its block of the reduction of all ranks' elements",
        true,
        Root.NONE,
        Blocks.SCATTERED,
        (communicator, send, recv, count, type, op, root, stream) ->
            stage -> communicator.reduceScatter(send, recv, count, type, op, stream));
  }

  /** Every rank gets the root's elements. */
  static SingleCall broadcast() {
    return new SingleCall(
        "broadcast",
        "broadcast_perf",
        "every rank gets the root's elements",
        false,
        Root.SENDS,
        Blocks.EVEN,
        (communicator, send, recv, count, type, op, root, stream) ->
            stage -> communicator.broadcast(send, recv, count, type, root, stream));
  }

  /** The root gets the reduction of all ranks' data. */
  static SingleCall reduce() {
    return new SingleCall(
        "reduce",
        "reduce_perf",
        "the root gets the reduction of all ranks' elements",
        true,
        Root.RECEIVES,
        Blocks.EVEN,
        (communicator, send, recv, count, type, op, root, stream) ->
            stage -> communicator.reduce(send, recv, count, type, op, root, stream));
  }

  /** The root gets the elements of all ranks, in rank order. */
  static SingleCall gather() {
    return new SingleCall(
        "gather",
        "gather_perf",
        "the root gets the elements of all ranks",
        false,
        Root.RECEIVES,
        Blocks.GATHERED,
        (communicator, send, recv, count, type, op, root, stream) ->
            stage -> communicator.gather(send, recv, count, type, root, stream));
  }

  /** Each rank gets its block of the root's elements. */
  static SingleCall scatter() {
    return new SingleCall(
        "scatter",
        "scatter_perf",
        "each rank gets its block of the root's elements",
        false,
        Root.SENDS,
        Blocks.SCATTERED,
        (communicator, send, recv, count, type, op, root, stream) ->
            stage -> communicator.scatter(send, recv, count, type, root, stream));
  }

  @Override
  public final boolean reduces() {
    return reduces;
  }

  @Override
  public final boolean rooted() {
    return part != Root.NONE;
  }

  @Override
  public final Shape shape(long elements, int elementBytes, int nranks) {
    return blocks.shape(elements, elementBytes, nranks);
  }

  @Override
  public double busFactor(int nranks) {
    return blocks.busFactor(nranks);
  }

  @Override
  public final PreparedCall prepare(
      Communicator communicator,
      DeviceBuffer send,
      DeviceBuffer recv,
      Case size,
      ReduceOp op,
      Stream stream) {
    long count = size.shape().count();
    DataType type = size.type();
    int root = size.root();
    return call.on(communicator, send, recv, count, type, op, root, stream);
  }

  @Override
  public List<Block> sent(Case size, TestData data, int rank, long seed) {
    if (part == Root.SENDS && rank != size.root()) {
      return List.of();
    }
    Pattern pattern = reduces ? data.input(rank, seed) : TestData.bits(size.type(), seed);
    Shape shape = size.shape();
    return List.of(new Block(pattern, rank * shape.sendInPlaceOffset(), shape.sendCount()));
  }

  @Override
  public List<Block> expected(Case size, TestData data, int rank, long seed) {
    Shape shape = size.shape();
    if (part == Root.RECEIVES && rank != size.root()) {
      return untouched(size, shape.recvCount(), seed);
    }
    Pattern pattern = reduces ? data.reduced(seed) : TestData.bits(size.type(), seed);
    return List.of(new Block(pattern, rank * shape.recvInPlaceOffset(), shape.recvCount()));
  }

  @Override
  public final List<Block> expectedInPlace(Case size, TestData data, int rank, long seed) {
    if (part != Root.RECEIVES || rank == size.root()) {
      return expected(size, data, rank, seed);
    }
    // Off the root nothing changes, what is sent from within the buffer included.
    Shape shape = size.shape();
    long before = rank * shape.sendInPlaceOffset();
    List<Block> all = new ArrayList<>(untouched(size, before, seed));
    all.addAll(sent(size, data, rank, seed));
    all.addAll(untouched(size, shape.recvCount() - before - shape.sendCount(), seed));
    return all;
  }
}
