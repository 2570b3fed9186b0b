package io.nccl4j.internal.cuda.driver;

import io.nccl4j.internal.schedule.WaitSteps;
import io.nccl4j.internal.spi.Interrupts;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Supplier;

/**
 * How a thread waits for the device: as {@link WaitSteps} says. Once it has spun in vain it looks
 * whether it was interrupted.
 */
public final class Backoff {
  /** After so long nobody notices that a wait ends late by a sleep. */
  private static final long YIELD_NANOS = 1_000_000_000;

  private static final long SLEEP_NANOS = 30_000;
  private static final long UNINTERRUPTED_NANOS = 20_000;

  private static volatile WaitSteps steps = new WaitSteps(false, UNINTERRUPTED_NANOS, YIELD_NANOS);

  private Backoff() {}

  /** Tells how many ranks of this machine wait for devices at the same time. */
  public static void setRanks(int most) {
    steps = WaitSteps.of(most, YIELD_NANOS);
  }

  /**
   * Between two questions of a thread that has waited for so long.
   *
   * @param what it waits for, in words
   * @throws io.nccl4j.InterruptedWaitException if the thread is interrupted
   */
  public static void pause(long waitedNanos, Supplier<String> what) {
    if (waitedNanos >= UNINTERRUPTED_NANOS && Thread.currentThread().isInterrupted()) {
      throw Interrupts.ended(what.get());
    }
    pauseUninterruptibly(waitedNanos);
  }

  /** The same where an interrupt ends nothing. */
  public static void pauseUninterruptibly(long waitedNanos) {
    WaitSteps now = steps;
    if (waitedNanos < now.spinNanos()) {
      Thread.onSpinWait();
    } else if (waitedNanos < now.yieldNanos()) {
      Thread.yield();
    } else if (Thread.currentThread().isInterrupted()) {
      Interrupts.sleepUninterruptibly(SLEEP_NANOS);
    } else {
      LockSupport.parkNanos(SLEEP_NANOS);
    }
  }
}
