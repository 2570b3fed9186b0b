package io.nccl4j.bench;

import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.util.ArrayList;
import java.util.List;

/** {@code gather_perf}: the root gets the elements of all ranks, in rank order. */
public final class GatherProgram extends SingleCall {
  /** The program. */
  public GatherProgram() {
    super("gather", "gather_perf", "the root gets the elements of all ranks");
  }

  @Override
  public boolean reduces() {
    return false;
  }

  @Override
  public boolean rooted() {
    return true;
  }

  @Override
  public Shape shape(long elements, int elementBytes, int nranks) {
    long block = Shape.block(elements, elementBytes, nranks);
    return new Shape(block, nranks * block, block, block, 0);
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
    communicator.gather(send, recv, count, type, root, stream);
  }

  @Override
  public double busFactor(int nranks) {
    return (nranks - 1.0) / nranks;
  }

  @Override
  List<Block> sent(Case size, TestData data, int rank, long seed) {
    long count = size.shape().sendCount();
    return List.of(new Block(TestData.bits(size.type(), seed), rank * count, count));
  }

  @Override
  List<Block> expected(Case size, TestData data, int rank, long seed) {
    return rank == size.root()
        ? List.of(new Block(TestData.bits(size.type(), seed), 0, size.shape().recvCount()))
        : untouched(size, size.shape().recvCount(), seed);
  }

  @Override
  List<Block> expectedInPlace(Case size, TestData data, int rank, long seed) {
    if (rank == size.root()) {
      return expected(size, data, rank, seed);
    }
    // Off the root nothing changes, what is sent from within the buffer included.
    long count = size.shape().sendCount();
    List<Block> blocks = new ArrayList<>(untouched(size, rank * count, seed));
    blocks.addAll(sent(size, data, rank, seed));
    blocks.addAll(untouched(size, (size.nranks() - 1 - rank) * count, seed));
    return blocks;
  }
}
