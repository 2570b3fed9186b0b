package io.nccl4j.cuda;

import io.nccl4j.DeadlineException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Calls of NCCL on a communicator that may wait for other ranks, or go on in the background, as the
 * configuration has it.
 */
@SuppressWarnings("try") // a scope is entered, not used
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

  /** As the other form, within {@code timeout}; the call is made on a thread of its own. */
  static void run(CudaCommunicator communicator, String what, Duration timeout, Call call) {
    String of = what + " of communicator " + communicator.name();
    MemorySegment handle = handle(communicator, of);
    AtomicInteger result = new AtomicInteger();
    communicator.cudaDevice().prepare();
    try {
      Patiently.run(
          "nccl4j-" + of,
          () -> {
            try (CudaDevice.Scope ignored = communicator.cudaDevice().enter()) {
              result.set(call.run(handle));
            }
          },
          timeout,
          () -> communicator.fail(late(of, timeout)),
          communicator::failureCause,
          () -> late(of, timeout));
    } catch (NcclException e) {
      communicator.fail(e);
      throw e;
    }
    if (NcclResults.isFailure(result.get())) {
      NcclException e = NcclResults.failure(result.get(), of);
      if (result.get() != INVALID_ARGUMENT) {
        communicator.fail(e);
      }
      throw e;
    }
    // The call says success also when it goes on in the background.
    communicator.callGoesOn(of);
    communicator.awaitReady(timeout, () -> of + ": not all ranks called it");
    throwIfFailed(communicator);
  }

  static DeadlineException late(String of, Duration timeout) {
    return new DeadlineException(
        of + " was not done after " + timeout.toMillis() + " ms",
        "call it on all ranks that it needs; init-timeout sets the deadline");
  }

  /** Calls what does not wait; a failure leaves the communicator as it is. */
  static void query(CudaCommunicator communicator, String what, Call call) {
    String of = what + " of communicator " + communicator.name();
    int result;
    communicator.guard().enter();
    try {
      result = call.run(handle(communicator, of));
    } finally {
      communicator.guard().leave();
    }
    NcclResults.check(result, of);
  }

  private static MemorySegment handle(CudaCommunicator communicator, String of) {
    MemorySegment handle = communicator.handle();
    if (handle.equals(MemorySegment.NULL)) {
      throwIfFailed(communicator);
      throw new InvalidUsageException(of + ": it is closed", "create a new one");
    }
    return handle;
  }

  private static void throwIfFailed(CudaCommunicator communicator) {
    NcclException failure = communicator.failureCause();
    if (failure != null) {
      throw failure;
    }
  }
}
