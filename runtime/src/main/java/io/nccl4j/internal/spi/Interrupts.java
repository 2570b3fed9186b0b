package io.nccl4j.internal.spi;

import io.nccl4j.AbortedException;
import io.nccl4j.InterruptedWaitException;
import io.nccl4j.NcclException;
import java.util.concurrent.locks.LockSupport;

/** What a wait does about an interrupt of its thread. */
public final class Interrupts {
  private Interrupts() {}

  /**
   * What ends a wait for queued work, or for room to queue more. The flag is left as it is: set.
   *
   * @param what is waited for, in words
   */
  public static InterruptedWaitException ended(String what) {
    return new InterruptedWaitException(
        "interrupted while waiting: " + what,
        "what is queued goes on: clear the interrupt with Thread.interrupted() to wait again, or"
            + " abort the communicator");
  }

  /**
   * How a communicator fails that cannot go on after a call on it ended with this: who uses it
   * later was not interrupted.
   */
  public static NcclException asFailure(NcclException e) {
    return e instanceof InterruptedWaitException
        ? new AbortedException(e.problem(), "create a new communicator").causedBy(e)
        : e;
  }

  /** What a caller is told of such a failure: one that ended its own call is its interrupt. */
  public static NcclException toCaller(NcclException failure) {
    return Thread.currentThread().isInterrupted()
            && failure.getCause() instanceof InterruptedWaitException e
        ? new InterruptedWaitException(e.problem(), e.remedy()).causedBy(failure)
        : Failures.again(failure);
  }

  /** Sleeps, which {@link LockSupport#parkNanos} does not on an interrupted thread. */
  public static void sleepUninterruptibly(long nanos) {
    boolean interrupted = Thread.interrupted();
    LockSupport.parkNanos(nanos);
    if (interrupted) {
      Thread.currentThread().interrupt();
    }
  }
}
