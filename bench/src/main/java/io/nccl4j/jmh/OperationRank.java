package io.nccl4j.jmh;

import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.bench.program.Collective;
import io.nccl4j.bench.program.RankCall;
import org.jspecify.annotations.Nullable;

/** A rank whose step is some operations, queued one behind the other and waited for together. */
final class OperationRank implements Lockstep.Rank {
  private final @Nullable Collective operation;
  private final RankCall call;
  private final int batch;
  private final Stream stream;
  private final DeviceBuffer in;
  private final DeviceBuffer out;

  /**
   * A rank.
   *
   * @param operation null: its step does nothing
   * @param count floats of a block
   * @param batch operations of a step
   */
  OperationRank(Communicator communicator, @Nullable Collective operation, int count, int batch) {
    this.operation = operation;
    this.batch = batch;
    int nranks = communicator.nranks();
    stream = communicator.device().newStream();
    in = communicator.device().allocate(DataType.FLOAT32, (long) count * nranks);
    out = communicator.device().allocate(DataType.FLOAT32, (long) count * nranks);
    float[] values = new float[count * nranks];
    for (int i = 0; i < values.length; i++) {
      values[i] = input(communicator.rank(), i / count);
    }
    in.copyFrom(values);
    call =
        new RankCall(
            communicator,
            in,
            out,
            RankCall.Sizes.of(count),
            DataType.FLOAT32,
            ReduceOp.SUM,
            0,
            stream,
            true);
  }

  /** Each element of a block of what a rank puts in. */
  static float input(int rank, int block) {
    return 1 + rank + 100 * block;
  }

  @Override
  public void step() {
    if (operation == null) {
      return;
    }
    for (int i = 0; i < batch; i++) {
      operation.issue(call);
    }
    stream.synchronize();
  }

  /** Sets what is received to zeros. */
  void clear() {
    stream.fill(out, (byte) 0);
    stream.synchronize();
  }

  /** All that was received. */
  float[] result() {
    return out.toFloats();
  }

  @Override
  public void close() {
    stream.close();
    in.close();
    out.close();
  }
}
