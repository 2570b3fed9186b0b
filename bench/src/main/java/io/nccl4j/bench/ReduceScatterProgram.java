package io.nccl4j.bench;

import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.util.List;

/** {@code reduce_scatter_perf}: every rank gets its block of the reduction of all ranks' data. */
public final class ReduceScatterProgram extends SingleCall {
  /** The program. */
  public ReduceScatterProgram() {
    super(
        "reducescatter",
        "reduce_scatter_perf",
        "each rank gets its block of the reduction of all ranks' elements");
  }

  @Override
  public boolean reduces() {
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
    communicator.reduceScatter(send, recv, count, type, op, stream);
  }

  @Override
  public double busFactor(int nranks) {
    return (nranks - 1.0) / nranks;
  }

  @Override
  List<Block> sent(Case size, TestData data, int rank, long seed) {
    return List.of(new Block(data.input(rank, seed), 0, size.shape().sendCount()));
  }

  @Override
  List<Block> expected(Case size, TestData data, int rank, long seed) {
    long count = size.shape().recvCount();
    return List.of(new Block(data.reduced(seed), rank * count, count));
  }
}
