package io.nccl4j.internal.cuda;

import io.nccl4j.DeadlineException;
import io.nccl4j.InterruptedWaitException;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.internal.spi.Failures;
import io.nccl4j.internal.spi.Interrupts;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import org.jspecify.annotations.Nullable;

/**
 * Calls of NCCL on a communicator that may wait for other ranks, or go on in the background, as the
 * configuration has it.
 */
@SuppressWarnings("try") // a scope is entered, not used
final class CudaCalls {
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
    CudaHealth health = communicator.health();
    MemorySegment handle = handle(communicator, of);
    communicator.cudaDevice().prepare();
    try {
      Patiently.run(
          "nccl4j-" + of,
          () -> {
            try (CudaDevice.Scope ignored = communicator.cudaDevice().enter()) {
              NcclResults.check(call.run(handle), of);
            }
          },
          timeout,
          new Wait(health, of, timeout));
    } catch (InvalidArgumentException e) {
      throw e;
    } catch (NcclException e) {
      health.fail(Interrupts.asFailure(e));
      throw e;
    }
    // The call says success also when it goes on in the background.
    communicator.pending().callGoesOn(of);
    try {
      communicator.pending().await(timeout, () -> of + ": not all ranks called it");
    } catch (InterruptedWaitException e) {
      health.fail(Interrupts.asFailure(e));
      throw e;
    }
    health.throwIfFailed();
  }

  /** A call on a communicator, which fails when nobody waits for the call any more. */
  private record Wait(CudaHealth health, String of, Duration timeout) implements Patiently.Wait {
    @Override
    public @Nullable NcclException over() {
      NcclException cause = health.failure();
      if (cause == null) {
        return null;
      }
      health.told();
      return Failures.again(cause);
    }

    @Override
    public @Nullable NcclException ofPeer() {
      return over();
    }

    @Override
    public NcclException late() {
      return CudaCalls.late(of, timeout);
    }

    @Override
    public void giveUp(NcclException reason) {
      health.fail(Interrupts.asFailure(reason));
    }
  }

  static DeadlineException late(String of, Duration timeout) {
    return new DeadlineException(
        of + " was not done after " + timeout.toMillis() + " ms",
        "call it on all ranks that it needs; init-timeout sets the deadline");
  }

  /** Calls what does not wait; a failure leaves the communicator as it is. */
  static void query(CudaCommunicator communicator, String what, Call call) {
    String of = what + " of communicator " + communicator.name();
    Guard guard = communicator.nccl().guard();
    int result;
    guard.enter();
    try {
      result = call.run(handle(communicator, of));
    } finally {
      guard.leave();
    }
    NcclResults.check(result, of);
  }

  private static MemorySegment handle(CudaCommunicator communicator, String of) {
    MemorySegment handle = communicator.nccl().get();
    if (handle.equals(MemorySegment.NULL)) {
      communicator.health().throwIfFailed();
      throw new InvalidUsageException(of + ": it is closed", "create a new one");
    }
    return handle;
  }
}
