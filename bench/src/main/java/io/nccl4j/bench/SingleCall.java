package io.nccl4j.bench;

import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;

/** A program whose operation is one call, or one group of calls, that needs nothing made before. */
public abstract class SingleCall extends Program {
  /** A program; see {@link Program}. */
  SingleCall(String command, String testsName, String summary) {
    super(command, testsName, summary);
  }

  /** Issues one operation on one rank. */
  public abstract void launch(
      Communicator communicator,
      DeviceBuffer send,
      DeviceBuffer recv,
      long count,
      DataType type,
      ReduceOp op,
      int root,
      Stream stream);

  @Override
  final Operation prepare(
      Communicator communicator,
      DeviceBuffer send,
      DeviceBuffer recv,
      Case size,
      ReduceOp op,
      Stream stream) {
    long count = size.shape().count();
    DataType type = size.type();
    int root = size.root();
    return stage -> launch(communicator, send, recv, count, type, op, root, stream);
  }
}
