package io.nccl4j.bench.program;

import io.nccl4j.bench.data.Block;
import io.nccl4j.bench.data.Pattern;
import io.nccl4j.bench.data.TestData;
import java.util.List;
import java.util.stream.IntStream;

/** {@code alltoall_perf}: each rank sends a block to every rank. It has no in-place form. */
public final class AllToAllProgram extends SingleCall {
  /** The program. */
  public AllToAllProgram() {
    super(
        "alltoall",
        "alltoall_perf",
        "each rank sends a block of its own to every rank",
        false,
        Root.NONE,
        Blocks.EXCHANGED,
        (communicator, send, recv, count, type, op, root, stream) ->
            stage -> communicator.allToAll(send, recv, count, type, stream));
  }

  @Override
  public boolean inPlace() {
    return false;
  }

  @Override
  public List<Block> sent(Case size, TestData data, int rank, long seed) {
    long count = size.shape().sendCount();
    return List.of(new Block(TestData.bits(size.type(), seed), rank * count, count));
  }

  @Override
  public List<Block> expected(Case size, TestData data, int rank, long seed) {
    int nranks = size.nranks();
    long block = size.shape().count();
    Pattern bits = TestData.bits(size.type(), seed);
    return IntStream.range(0, nranks)
        .mapToObj(from -> new Block(bits, ((long) from * nranks + rank) * block, block))
        .toList();
  }
}
