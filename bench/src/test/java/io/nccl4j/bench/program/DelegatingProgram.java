package io.nccl4j.bench.program;

import io.nccl4j.Communicator;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.bench.data.Block;
import io.nccl4j.bench.data.TestData;
import java.util.List;

/** A program that can be changed. */
public abstract class DelegatingProgram extends Program {
  private final Program original;

  public DelegatingProgram(Program original) {
    super(original.command(), original.testsName(), original.summary());
    this.original = original;
  }

  @Override
  public boolean reduces() {
    return original.reduces();
  }

  @Override
  public boolean rooted() {
    return original.rooted();
  }

  @Override
  public boolean inPlace() {
    return original.inPlace();
  }

  @Override
  public Shape shape(long elements, int elementBytes, int nranks) {
    return original.shape(elements, elementBytes, nranks);
  }

  @Override
  public boolean sends(int from, int to, int nranks, int root) {
    return original.sends(from, to, nranks, root);
  }

  @Override
  public int stages(int nranks) {
    return original.stages(nranks);
  }

  @Override
  public PreparedCall prepare(
      Communicator communicator,
      DeviceBuffer send,
      DeviceBuffer recv,
      Case size,
      ReduceOp op,
      Stream stream) {
    return original.prepare(communicator, send, recv, size, op, stream);
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
  public List<Block> sent(Case size, TestData data, int rank, long seed) {
    return original.sent(size, data, rank, seed);
  }

  @Override
  public List<Block> expected(Case size, TestData data, int rank, long seed) {
    return original.expected(size, data, rank, seed);
  }

  @Override
  public List<Block> expectedInPlace(Case size, TestData data, int rank, long seed) {
    return original.expectedInPlace(size, data, rank, seed);
  }
}
