package io.nccl4j.bench;

import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.util.List;

/** {@code reduce_perf}: the root gets the reduction of all ranks' data. */
public final class ReduceProgram extends SingleCall {
  /** The program. */
  public ReduceProgram() {
    super("reduce", "reduce_perf", "the root gets the reduction of all ranks' elements");
  }

  @Override
  public boolean reduces() {
    return true;
  }

  @Override
  public boolean rooted() {
    return true;
  }

  @Override
  public Shape shape(long elements, int elementBytes, int nranks) {
    return Shape.even(elements);
  }

  @Override
  public void launch(
      Communicator communicator,
      DeviceBuffer send,
      DeviceBuffer recv,
      long count,
      DataType type,
      ReduceOp op,
      int root,
      Stream stream) {
    communicator.reduce(send, recv, count, type, op, root, stream);
  }

  @Override
  public double busFactor(int nranks) {
    return 1;
  }

  @Override
  List<Block> sent(Case size, TestData data, int rank, long seed) {
    return List.of(new Block(data.input(rank, seed), 0, size.shape().sendCount()));
  }

  @Override
  List<Block> expected(Case size, TestData data, int rank, long seed) {
    return rank == size.root()
        ? List.of(new Block(data.reduced(seed), 0, size.shape().recvCount()))
        : untouched(size, size.shape().recvCount(), seed);
  }

  @Override
  List<Block> expectedInPlace(Case size, TestData data, int rank, long seed) {
    // Off the root the one buffer is the one that is sent, and stays as it is.
    return rank == size.root() ? expected(size, data, rank, seed) : sent(size, data, rank, seed);
  }
}
