package io.nccl4j.bench.run;

import io.nccl4j.AbortedException;
import java.util.concurrent.atomic.AtomicInteger;
import org.jspecify.annotations.Nullable;

/**
 * Lets the threads of one process wait for each other by spinning, so that they leave within
 * nanoseconds; a blocking barrier would let them start tens of microseconds apart. A thread that
 * fails breaks it, so that none waits for it.
 */
final class ThreadBarrier {
  private static final int SPINS_BEFORE_YIELD = 1000;

  private final int threads;
  private final AtomicInteger arrived = new AtomicInteger();
  private volatile int generation;
  private volatile @Nullable Throwable broken;

  /** A barrier for this many threads. */
  ThreadBarrier(int threads) {
    this.threads = threads;
  }

  /**
   * Waits until all threads are here.
   *
   * @throws AbortedException if another thread failed
   */
  void await() {
    int mine = generation;
    if (arrived.incrementAndGet() == threads) {
      arrived.set(0);
      generation = mine + 1;
    }
    int spins = 0;
    while (generation == mine && broken == null) {
      if (++spins < SPINS_BEFORE_YIELD) {
        Thread.onSpinWait();
      } else {
        Thread.yield();
      }
    }
    Throwable cause = broken;
    if (cause != null) {
      throw (AbortedException)
          new AbortedException("another rank of this process failed", "see the cause")
              .causedBy(cause);
    }
  }

  /** Sends every thread that waits, or comes to wait, away. */
  void breakBecauseOf(Throwable cause) {
    broken = cause;
  }
}
