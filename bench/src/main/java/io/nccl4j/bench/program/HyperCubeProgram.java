package io.nccl4j.bench.program;

import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Group;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.bench.data.Block;
import io.nccl4j.bench.data.TestData;
import io.nccl4j.bench.options.Options;
import java.util.List;

/**
 * {@code hypercube_perf}: an allGather of sends and receives. In step <i>i</i> the ranks whose
 * numbers differ in bit <i>i</i> exchange all that they have; the number of ranks is a power of
 * two. Steps that one thread issues for several ranks are groups one after the other: in one group,
 * as nccl-tests has them, a rank would send what it has not received yet.
 */
public final class HyperCubeProgram extends Program {
  /** The program. */
  public HyperCubeProgram() {
    super(
        "hypercube",
        "hypercube_perf",
        "every rank gets the elements of all ranks, by sends and receives");
  }

  @Override
  void checkGroup(Options options, int nranks) {
    if (Integer.bitCount(nranks) != 1) {
      throw new InvalidArgumentException(
          "there are " + nranks + " ranks", "hypercube needs a power of two");
    }
  }

  @Override
  public boolean reduces() {
    return false;
  }

  @Override
  public Shape shape(long elements, int elementBytes, int nranks) {
    return Blocks.GATHERED.shape(elements, elementBytes, nranks);
  }

  @Override
  public boolean sends(int from, int to, int nranks, int root) {
    return Integer.bitCount(from ^ to) == 1;
  }

  @Override
  public int stages(int nranks) {
    return Math.max(1, Integer.numberOfTrailingZeros(nranks));
  }

  @Override
  public PreparedCall prepare(
      Communicator communicator,
      DeviceBuffer send,
      DeviceBuffer recv,
      Case size,
      ReduceOp op,
      Stream stream) {
    int rank = communicator.rank();
    int nranks = communicator.nranks();
    long block = size.sendBytes();
    DeviceBuffer own = recv.slice(rank * block, block);
    int steps = Integer.numberOfTrailingZeros(nranks);
    DeviceBuffer[] sends = new DeviceBuffer[steps];
    DeviceBuffer[] recvs = new DeviceBuffer[steps];
    for (int step = 0; step < steps; step++) {
      int width = 1 << step;
      int first = rank & -width;
      sends[step] = recv.slice(first * block, width * block);
      recvs[step] = recv.slice((first ^ width) * block, width * block);
    }
    boolean copy = own.address() != send.address() && block > 0;
    long count = size.shape().count();
    DataType type = size.type();
    return stage -> {
      if (stage == 0 && copy) {
        stream.copy(own, send);
      }
      if (stage < steps) {
        int peer = rank ^ 1 << stage;
        try (Group group = Group.start()) {
          communicator.send(sends[stage], count << stage, type, peer, stream);
          communicator.recv(recvs[stage], count << stage, type, peer, stream);
          group.launch();
        }
      }
    };
  }

  @Override
  public double algorithmBytes(Shape shape, int elementBytes, int nranks) {
    return (double) shape.count() * elementBytes * Math.max(1, nranks - 1);
  }

  @Override
  public double busFactor(int nranks) {
    return 1;
  }

  @Override
  public List<Block> sent(Case size, TestData data, int rank, long seed) {
    long count = size.shape().sendCount();
    return List.of(new Block(TestData.bits(size.type(), seed), rank * count, count));
  }

  @Override
  public List<Block> expected(Case size, TestData data, int rank, long seed) {
    return List.of(new Block(TestData.bits(size.type(), seed), 0, size.shape().recvCount()));
  }
}
