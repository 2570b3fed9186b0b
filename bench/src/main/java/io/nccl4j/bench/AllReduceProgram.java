package io.nccl4j.bench;

import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.util.List;

/** {@code all_reduce_perf}: every rank gets the reduction of all ranks' data. */
public final class AllReduceProgram extends SingleCall {
  /** The program. */
  public AllReduceProgram() {
    super("allreduce", "all_reduce_perf", "every rank gets the reduction of all ranks' elements");
  }

  @Override
  public boolean reduces() {
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
    communicator.allReduce(send, recv, count, type, op, stream);
  }

  @Override
  public double busFactor(int nranks) {
    return 2.0 * (nranks - 1) / nranks;
  }

  @Override
  List<Block> sent(Case size, TestData data, int rank, long seed) {
    return List.of(new Block(data.input(rank, seed), 0, size.shape().sendCount()));
  }

  @Override
  List<Block> expected(Case size, TestData data, int rank, long seed) {
    return List.of(new Block(data.reduced(seed), 0, size.shape().recvCount()));
  }
}
