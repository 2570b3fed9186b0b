package io.nccl4j.bench;

import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.util.List;

/** An {@link AllReduceProgram} that can be changed. */
abstract class DelegatingProgram extends Program {
  private final AllReduceProgram original = new AllReduceProgram();

  DelegatingProgram() {
    super("changed", "changed_perf");
  }

  @Override
  public boolean reduces() {
    return original.reduces();
  }

  @Override
  public Shape shape(long elements, int elementBytes, int nranks) {
    return original.shape(elements, elementBytes, nranks);
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
    original.launch(communicator, send, recv, count, type, op, root, stream);
  }

  @Override
  public double algorithmBytes(Shape shape, int elementBytes, int nranks) {
    return original.algorithmBytes(shape, elementBytes, nranks);
  }

  @Override
  public double busFactor(int nranks) {
    return original.busFactor(nranks);
  }

  @Override
  List<Block> sent(Case size, TestData data, int rank, long seed) {
    return original.sent(size, data, rank, seed);
  }

  @Override
  List<Block> expected(Case size, TestData data, int rank, long seed) {
    return original.expected(size, data, rank, seed);
  }
}
