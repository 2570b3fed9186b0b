package io.nccl4j.internal.cuda;

import io.nccl4j.internal.operation.Signature;
import io.nccl4j.internal.schedule.Work;

/** An operation that NCCL carries out. */
final class CudaWork extends Work {
  /** Set once, before the first use. */
  @SuppressWarnings("NullAway.Init")
  CudaCommunicator communicator;

  /** NCCL's handle of the reduction made for this operation; −1 if there is none. */
  int createdOp = -1;

  /** For a graph's work: how many were called before it in the capture. */
  int order;

  /** A work of a FIFO. */
  CudaWork() {
    this(false);
  }

  CudaWork(boolean captured) {
    super(captured);
  }

  /** How messages name it. */
  String describe() {
    return Signature.describe(code(), count)
        + " #"
        + seq
        + " of communicator "
        + communicator.name();
  }
}
