package io.nccl4j.bench;

import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.util.List;

/** {@code all_gather_perf}: every rank gets the elements of all ranks, in rank order. */
public final class AllGatherProgram extends SingleCall {
  /** The program. */
  public AllGatherProgram() {
    super("allgather", "all_gather_perf", "every rank gets the elements of all ranks");
  }

  @Override
  public boolean reduces() {
    return false;
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
    communicator.allGather(send, recv, count, type, stream);
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
    return List.of(new Block(TestData.bits(size.type(), seed), 0, size.shape().recvCount()));
  }
}
