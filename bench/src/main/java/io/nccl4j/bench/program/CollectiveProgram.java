package io.nccl4j.bench.program;

import io.nccl4j.Communicator;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.bench.data.Block;
import io.nccl4j.bench.data.Pattern;
import io.nccl4j.bench.data.TestData;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.LongStream;

/**
 * A program whose operation is a collective with blocks of one size.
 *
 * <p>Content: all ranks' data is one pattern, of which a rank sends, and gets, what lies where in
 * place its data would lie; or the reduction of as many patterns as there are ranks.
 */
final class CollectiveProgram extends Program {
  private final Collective collective;

  /** A program; see {@link Program}. */
  CollectiveProgram(String command, String testsName, String summary, Collective collective) {
    super(command, testsName, summary);
    this.collective = collective;
  }

  @Override
  public boolean reduces() {
    return collective.reduces();
  }

  @Override
  public boolean rooted() {
    return collective.rooted();
  }

  @Override
  public boolean inPlace() {
    return collective.inPlace();
  }

  @Override
  public Shape shape(long elements, int elementBytes, int nranks) {
    return collective.blocks().shape(elements, elementBytes, nranks);
  }

  @Override
  public boolean sends(int from, int to, int nranks, int root) {
    return collective.messages(from, to, nranks, root);
  }

  @Override
  public double busFactor(int nranks) {
    return collective.busFactor(nranks);
  }

  @Override
  public PreparedCall prepare(
      Communicator communicator,
      DeviceBuffer send,
      DeviceBuffer recv,
      Case size,
      ReduceOp op,
      Stream stream) {
    RankCall.Sizes sizes = RankCall.Sizes.of(size.shape().count());
    RankCall call =
        new RankCall(communicator, send, recv, sizes, size.type(), op, size.root(), stream, false);
    return collective.prepare(call);
  }

  @Override
  public List<Block> sent(Case size, TestData data, int rank, long seed) {
    if (!collective.sends(rank, size.root())) {
      return List.of();
    }
    Pattern pattern = reduces() ? data.input(rank, seed) : TestData.bits(size.type(), seed);
    Shape shape = size.shape();
    return List.of(new Block(pattern, collective.blocks().sent(shape, rank), shape.sendCount()));
  }

  @Override
  public List<Block> expected(Case size, TestData data, int rank, long seed) {
    Shape shape = size.shape();
    if (!collective.receives(rank, size.root())) {
      return untouched(size, shape.recvCount(), seed);
    }
    Pattern pattern = reduces() ? data.reduced(seed) : TestData.bits(size.type(), seed);
    long[] starts = collective.blocks().received(shape, rank, size.nranks()).toArray();
    long count = shape.recvCount() / starts.length;
    return LongStream.of(starts).mapToObj(start -> new Block(pattern, start, count)).toList();
  }

  @Override
  public List<Block> expectedInPlace(Case size, TestData data, int rank, long seed) {
    if (collective.receives(rank, size.root())) {
      return expected(size, data, rank, seed);
    }
    // Off the root nothing changes, what is sent from within the buffer included.
    Shape shape = size.shape();
    long before = rank * shape.sendInPlaceOffset();
    List<Block> all = new ArrayList<>(untouched(size, before, seed));
    all.addAll(sent(size, data, rank, seed));
    all.addAll(untouched(size, shape.recvCount() - before - shape.sendCount(), seed));
    return all;
  }
}
