package io.nccl4j.cuda;

import java.util.concurrent.locks.LockSupport;

/** How a thread waits that asks again and again: it spins, then yields, then sleeps. */
final class Backoff {
  private static final long SPIN_NANOS = 20_000;
  private static final long YIELD_NANOS = 200_000;
  private static final long PARK_NANOS = 30_000;

  private Backoff() {}

  /** Between two questions of a thread that has waited for so long. */
  static void pause(long waitedNanos) {
    if (waitedNanos < SPIN_NANOS) {
      Thread.onSpinWait();
    } else if (waitedNanos < YIELD_NANOS) {
      Thread.yield();
    } else {
      LockSupport.parkNanos(PARK_NANOS);
    }
  }
}
