package io.nccl4j.bench;

import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.util.List;

/** {@code broadcast_perf}: every rank gets the root's elements. */
public final class BroadcastProgram extends SingleCall {
  /** The program. */
  public BroadcastProgram() {
    super("broadcast", "broadcast_perf", "every rank gets the root's elements");
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
    communicator.broadcast(send, recv, count, type, root, stream);
  }

  @Override
  public double busFactor(int nranks) {
    return 1;
  }

  @Override
  List<Block> sent(Case size, TestData data, int rank, long seed) {
    return rank == size.root() ? expected(size, data, rank, seed) : List.of();
  }

  @Override
  List<Block> expected(Case size, TestData data, int rank, long seed) {
    return List.of(new Block(TestData.bits(size.type(), seed), 0, size.shape().recvCount()));
  }
}
