package io.nccl4j.bench.program;

import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Group;
import io.nccl4j.Stream;
import io.nccl4j.bench.data.Block;
import io.nccl4j.bench.data.TestData;
import java.util.List;

/**
 * {@code sendrecv_perf}: each rank sends to the next and receives from the previous, in a ring. It
 * has no in-place form; nccl-tests times one that overwrites what it sends, and never checks it.
 */
public final class SendRecvProgram extends SingleCall {
  /** The program. */
  public SendRecvProgram() {
    super(
        "sendrecv",
        "sendrecv_perf",
        "each rank sends to the next and receives from the previous, in a ring",
        false,
        Root.NONE,
        Blocks.EVEN,
        (communicator, send, recv, count, type, op, root, stream) ->
            stage -> ring(communicator, send, recv, count, type, stream));
  }

  @Override
  public boolean inPlace() {
    return false;
  }

  private static void ring(
      Communicator communicator,
      DeviceBuffer send,
      DeviceBuffer recv,
      long count,
      DataType type,
      Stream stream) {
    int nranks = communicator.nranks();
    int rank = communicator.rank();
    try (Group group = Group.start()) {
      communicator.send(send, count, type, (rank + 1) % nranks, stream);
      communicator.recv(recv, count, type, (rank + nranks - 1) % nranks, stream);
      group.launch();
    }
  }

  @Override
  public List<Block> sent(Case size, TestData data, int rank, long seed) {
    return List.of(ofSender(size, rank, seed));
  }

  @Override
  public List<Block> expected(Case size, TestData data, int rank, long seed) {
    return List.of(ofSender(size, (rank + size.nranks() - 1) % size.nranks(), seed));
  }

  private static Block ofSender(Case size, int rank, long seed) {
    long count = size.shape().sendCount();
    return new Block(TestData.bits(size.type(), seed), rank * count, count);
  }
}
