package io.nccl4j.internal.cuda;

import io.nccl4j.internal.schedule.Work;

/** An operation that NCCL carries out. */
final class CudaWork extends Work {
  /** Set once, before the first use. */
  @SuppressWarnings("NullAway.Init")
  CudaCommunicator communicator;

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
    return communicator.self().describe(this);
  }
}
