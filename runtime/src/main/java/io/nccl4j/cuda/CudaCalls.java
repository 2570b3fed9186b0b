package io.nccl4j.cuda;

import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import java.lang.foreign.MemorySegment;
import java.time.Duration;

/** Calls of NCCL on a communicator that may go on in the background. */
final class CudaCalls {
  private static final int INVALID_ARGUMENT = 4;

  /** A call with NCCL's handle; returns NCCL's result. */
  interface Call {
    int run(MemorySegment handle);
  }

  private CudaCalls() {}

  /**
   * Calls, and waits until NCCL is done or the init timeout is over.
   *
   * @param what for messages, for example {@code shrink}
   * @throws NcclException if it fails; the communicator has failed then, but for a wrong argument
   */
  static void run(CudaCommunicator communicator, String what, Call call) {
    run(communicator, what, communicator.config().initTimeout(), call);
  }

  /** As the other form, within {@code timeout}. */
  static void run(CudaCommunicator communicator, String what, Duration timeout, Call call) {
    String of = what + " of communicator " + communicator.name();
    int result = ask(communicator, of, call);
    if (NcclResults.isFailure(result)) {
      NcclException e = NcclResults.failure(result, of);
      if (result != INVALID_ARGUMENT) {
        communicator.fail(e);
      }
      throw e;
    }
    // The call says success also when it goes on in the background.
    communicator.callGoesOn(of);
    communicator.awaitReady(timeout, () -> of + ": not all ranks called it, and it");
    throwIfFailed(communicator);
  }

  /** Calls what does not go on; a failure leaves the communicator as it is. */
  static void query(CudaCommunicator communicator, String what, Call call) {
    String of = what + " of communicator " + communicator.name();
    NcclResults.check(ask(communicator, of, call), of);
  }

  /** Under the guard, with the handle if there is one. */
  private static int ask(CudaCommunicator communicator, String of, Call call) {
    communicator.guard().enter();
    try {
      MemorySegment handle = communicator.handle();
      if (!handle.equals(MemorySegment.NULL)) {
        return call.run(handle);
      }
    } finally {
      communicator.guard().leave();
    }
    throwIfFailed(communicator);
    throw new InvalidUsageException(of + ": it is closed", "create a new one");
  }

  static void throwIfFailed(CudaCommunicator communicator) {
    NcclException failure = communicator.failureCause();
    if (failure != null) {
      throw failure;
    }
  }
}
