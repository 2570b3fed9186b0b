package io.nccl4j.internal.cuda;

import io.nccl4j.internal.schedule.Work;
import org.jspecify.annotations.Nullable;

/** An operation that NCCL carries out. */
final class CudaWork extends Work {
  /** Set once, before the first use. */
  @SuppressWarnings("NullAway.Init")
  CudaCommunicator communicator;

  /** A work of a FIFO. */
  CudaWork() {
    this(false);
  }

  CudaWork(boolean captured) {
    super(captured);
  }

  @Override
  public CudaCommunicator owner() {
    return communicator;
  }

  /** Notes one run of a graph's work. */
  void note() {
    communicator.ledger().note(code(), count, signedCount(communicator.nranks()));
  }

  /** The stream it was called on. */
  @Nullable CudaStream cudaStream() {
    return CudaStream.of(stream);
  }
}
