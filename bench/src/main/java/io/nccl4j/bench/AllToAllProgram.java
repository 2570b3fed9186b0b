package io.nccl4j.bench;

import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.util.List;
import java.util.stream.IntStream;

/** {@code alltoall_perf}: each rank sends a block to every rank. It has no in-place form. */
public final class AllToAllProgram extends SingleCall {
  /** The program. */
  public AllToAllProgram() {
    super("alltoall", "alltoall_perf", "each rank sends a block of its own to every rank");
  }

  @Override
  public boolean reduces() {
    return false;
  }

  @Override
  public boolean inPlace() {
    return false;
  }

  @Override
  public Shape shape(long elements, int elementBytes, int nranks) {
    long block = Shape.block(elements, elementBytes, nranks);
    return new Shape(nranks * block, nranks * block, block, 0, 0);
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
    communicator.allToAll(send, recv, count, type, stream);
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
    int nranks = size.nranks();
    long block = size.shape().count();
    Pattern bits = TestData.bits(size.type(), seed);
    return IntStream.range(0, nranks)
        .mapToObj(from -> new Block(bits, ((long) from * nranks + rank) * block, block))
        .toList();
  }
}
