package io.nccl4j.internal.schedule;

import io.nccl4j.InterruptedWaitException;
import io.nccl4j.internal.machine.CompilerThreads;
import io.nccl4j.internal.spi.Interrupts;
import java.util.concurrent.locks.LockSupport;

/**
 * Lets the just-in-time compilers finish: ranks that poll keep processors from them, and a compiler
 * keeps one from a rank, for milliseconds.
 */
final class Compilers {
  private static final long LOOK_NANOS = 1_000_000;
  private static final int QUIET_LOOKS = 5;

  /** Where nobody can tell whether they run. */
  private static final long GUESS_NANOS = 50_000_000;

  private Compilers() {}

  /**
   * Waits until no compiler has been running for some milliseconds.
   *
   * @throws InterruptedWaitException if the calling thread is interrupted
   */
  static void awaitIdle(long mostNanos) {
    if (!CompilerThreads.areVisible()) {
      LockSupport.parkNanos(Math.min(GUESS_NANOS, mostNanos));
      return;
    }
    long start = System.nanoTime();
    int quiet = 0;
    while (quiet < QUIET_LOOKS && System.nanoTime() - start < mostNanos) {
      LockSupport.parkNanos(LOOK_NANOS);
      if (Thread.currentThread().isInterrupted()) {
        throw Interrupts.ended("the compilers");
      }
      quiet = CompilerThreads.anyRuns() ? 0 : quiet + 1;
    }
  }
}
