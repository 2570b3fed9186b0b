package io.nccl4j.internal.cuda;

import io.nccl4j.Communicator;
import io.nccl4j.internal.cuda.nccl.CudaRank;
import io.nccl4j.internal.schedule.Work;

/** An operation that NCCL carries out. */
final class CudaWork extends Work {
  /** Set once, before the first use. */
  @SuppressWarnings("NullAway.Init")
  CudaRank rank;

  /** A work of a FIFO. */
  CudaWork() {
    this(false);
  }

  CudaWork(boolean captured) {
    super(captured);
  }

  @Override
  public Communicator owner() {
    return rank.communicator();
  }

  @Override
  protected String awaited() {
    return rank.deadlines().missing(this);
  }

  /** Notes one run of a graph's work. */
  void note() {
    rank.ledger().note(code(), count, signedCount(rank.self().nranks()));
  }
}
