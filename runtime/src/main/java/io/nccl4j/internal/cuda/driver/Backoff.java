package io.nccl4j.internal.cuda.driver;

import io.nccl4j.internal.spi.Interrupts;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Supplier;

/**
 * How a thread waits that asks again and again: it spins, then yields, then sleeps. Once it has
 * spun in vain it looks whether it was interrupted.
 */
public final class Backoff {
  private static final long SPIN_NANOS = 20_000;
  private static final long YIELD_NANOS = 200_000;
  private static final long PARK_NANOS = 30_000;

  private Backoff() {}

  /**
   * Between two questions of a thread that has waited for so long.
   *
   * @param what it waits for, in words
   * @throws io.nccl4j.InterruptedWaitException if the thread is interrupted
   */
  public static void pause(long waitedNanos, Supplier<String> what) {
    if (waitedNanos >= SPIN_NANOS && Thread.currentThread().isInterrupted()) {
      throw Interrupts.ended(what.get());
    }
    pauseUninterruptibly(waitedNanos);
  }

  /** The same where an interrupt ends nothing. */
  public static void pauseUninterruptibly(long waitedNanos) {
    if (waitedNanos < SPIN_NANOS) {
      Thread.onSpinWait();
    } else if (waitedNanos < YIELD_NANOS) {
      Thread.yield();
    } else if (Thread.currentThread().isInterrupted()) {
      Interrupts.sleepUninterruptibly(PARK_NANOS);
    } else {
      LockSupport.parkNanos(PARK_NANOS);
    }
  }
}
