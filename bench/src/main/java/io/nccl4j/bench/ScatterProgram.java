package io.nccl4j.bench;

import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.util.List;

/** {@code scatter_perf}: each rank gets its block of the root's elements. */
public final class ScatterProgram extends SingleCall {
  /** The program. */
  public ScatterProgram() {
    super("scatter", "scatter_perf", "each rank gets its block of the root's elements");
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
    return new Shape(nranks * block, block, block, 0, block);
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
    communicator.scatter(send, recv, count, type, root, stream);
  }

  @Override
  public double busFactor(int nranks) {
    return (nranks - 1.0) / nranks;
  }

  @Override
  List<Block> sent(Case size, TestData data, int rank, long seed) {
    return rank == size.root()
        ? List.of(new Block(TestData.bits(size.type(), seed), 0, size.shape().sendCount()))
        : List.of();
  }

  @Override
  List<Block> expected(Case size, TestData data, int rank, long seed) {
    long count = size.shape().recvCount();
    return List.of(new Block(TestData.bits(size.type(), seed), rank * count, count));
  }
}
