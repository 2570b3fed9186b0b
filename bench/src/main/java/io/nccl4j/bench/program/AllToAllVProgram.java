package io.nccl4j.bench.program;

import io.nccl4j.Communicator;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.bench.data.Block;
import io.nccl4j.bench.data.Pattern;
import io.nccl4j.bench.data.TestData;
import io.nccl4j.bench.options.Options;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.function.IntToLongFunction;
import java.util.stream.IntStream;

/**
 * {@code alltoallv_perf}: each rank sends a different number of elements to every rank. Blocks lie
 * behind each other, in rank order. It has no in-place form. The size column is what the busiest
 * rank sends or receives; with a matrix of sizes there is one size.
 */
public final class AllToAllVProgram extends Program {
  private static final Collective COLLECTIVE = Collective.ALL_TO_ALL_V;

  private final Traffic traffic;

  /** The program, with shares that grow with the distance of two ranks. */
  public AllToAllVProgram() {
    this(Traffic.byDistance());
  }

  private AllToAllVProgram(Traffic traffic) {
    super("alltoallv", "alltoallv_perf", "each rank sends blocks of different sizes to every rank");
    this.traffic = traffic;
  }

  @Override
  public Program with(Map<String, String> environment) {
    return new AllToAllVProgram(Traffic.of(environment));
  }

  /** How many bytes each rank sends to each other. */
  public Traffic traffic() {
    return traffic;
  }

  @Override
  void checkGroup(Options options, int nranks) {
    if (traffic.file() == null) {
      return;
    }
    if (traffic.rows() < nranks) {
      throw new InvalidArgumentException(
          "the matrix "
              + traffic.file()
              + " has "
              + traffic.rows()
              + " rows, but there are "
              + nranks
              + " ranks",
          "give a row per rank");
    }
    long needed = busiest(nranks, 0, Traffic::sentBefore, Traffic::receivedBefore);
    if (options.sweep().minBytes() != options.sweep().maxBytes()) {
      throw new InvalidArgumentException(
          "a matrix has one size, but minbytes is not maxbytes", "give -b and -e the same size");
    }
    if (options.sweep().maxBytes() < needed) {
      throw new InvalidArgumentException(
          "maxbytes is "
              + options.sweep().maxBytes()
              + ", but the matrix needs "
              + needed
              + " bytes",
          "give a larger -b and -e, or a smaller " + Traffic.SCALE);
    }
  }

  private interface Sum {
    long of(Traffic traffic, int peer, int rank, int nranks, long total);
  }

  private long busiest(int nranks, long total, Sum... sums) {
    long most = 0;
    for (Sum sum : sums) {
      for (int rank = 0; rank < nranks; rank++) {
        most = Math.max(most, sum.of(traffic, nranks, rank, nranks, total));
      }
    }
    return most;
  }

  @Override
  public boolean reduces() {
    return COLLECTIVE.reduces();
  }

  @Override
  public boolean inPlace() {
    return COLLECTIVE.inPlace();
  }

  @Override
  public Shape shape(long elements, int elementBytes, int nranks) {
    long block = traffic.file() == null ? Shape.block(elements, elementBytes, nranks) : 0;
    long total = block * nranks * elementBytes;
    return new Shape(
        busiest(nranks, total, Traffic::sentBefore) / elementBytes,
        busiest(nranks, total, Traffic::receivedBefore) / elementBytes,
        block,
        0,
        0);
  }

  private static long total(Case size) {
    return size.shape().count() * size.nranks() * size.type().byteSize();
  }

  private static long[] elements(Case size, IntToLongFunction bytes) {
    return IntStream.range(0, size.nranks())
        .mapToLong(peer -> bytes.applyAsLong(peer) / size.type().byteSize())
        .toArray();
  }

  @Override
  public boolean sends(int from, int to, int nranks, int root) {
    return COLLECTIVE.messages(from, to, nranks, root);
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
    int nranks = size.nranks();
    long total = total(size);
    RankCall.Sizes sizes =
        new RankCall.Sizes(
            size.shape().count(),
            elements(size, to -> traffic.bytes(rank, to, nranks, total)),
            elements(size, to -> traffic.sentBefore(to, rank, nranks, total)),
            elements(size, from -> traffic.bytes(from, rank, nranks, total)),
            elements(size, from -> traffic.receivedBefore(from, rank, nranks, total)));
    RankCall call =
        new RankCall(communicator, send, recv, sizes, size.type(), op, size.root(), stream, false);
    return COLLECTIVE.prepare(call);
  }

  @Override
  public double busFactor(int nranks) {
    return COLLECTIVE.busFactor(nranks);
  }

  @Override
  public List<Block> sent(Case size, TestData data, int rank, long seed) {
    long count =
        traffic.sentBefore(size.nranks(), rank, size.nranks(), total(size))
            / size.type().byteSize();
    return List.of(
        new Block(TestData.bits(size.type(), seed), rank * size.shape().sendCount(), count));
  }

  @Override
  public List<Block> expected(Case size, TestData data, int rank, long seed) {
    int nranks = size.nranks();
    long total = total(size);
    Pattern bits = TestData.bits(size.type(), seed);
    long[] counts = elements(size, from -> traffic.bytes(from, rank, nranks, total));
    long[] starts = elements(size, from -> traffic.sentBefore(rank, from, nranks, total));
    List<Block> blocks = new ArrayList<>();
    long left = size.shape().recvCount();
    for (int from = 0; from < nranks; from++) {
      blocks.add(new Block(bits, from * size.shape().sendCount() + starts[from], counts[from]));
      left -= counts[from];
    }
    blocks.addAll(untouched(size, left, seed));
    return blocks;
  }
}
