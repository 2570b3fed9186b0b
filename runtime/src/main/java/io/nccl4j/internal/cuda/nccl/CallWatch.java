package io.nccl4j.internal.cuda.nccl;

import io.nccl4j.internal.cuda.driver.Backoff;
import io.nccl4j.internal.spi.HelperThread;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/**
 * Watches calls of NCCL that do not return. The first operations of a communicator wait for their
 * peers inside NCCL, where the calling thread sees neither a deadline nor an interrupt: this thread
 * does, and makes NCCL let the call go.
 */
final class CallWatch {
  /** How often it looks, in ns. */
  static final long TICK_NANOS = 5_000_000;

  private static final List<CudaDeadlines> WATCHED = new CopyOnWriteArrayList<>();
  private static final HelperThread THREAD =
      new HelperThread("nccl4j-cuda-calls", CallWatch::round, CallWatch::isBroken);

  // Constants: each look shall not allocate.
  private static final Consumer<CudaDeadlines> LOOK = CallWatch::look;

  /** A clock that costs nothing to read; never 0. */
  private static volatile long tick = 1;

  /** What went wrong at this tick; the thread's. */
  private static @Nullable Throwable failure;

  private CallWatch() {}

  /** The time, in ticks. */
  static long now() {
    return tick;
  }

  static synchronized void add(CudaDeadlines calls) {
    if (!THREAD.isStarted()) {
      THREAD.start();
    }
    WATCHED.add(calls);
    countRanks();
    THREAD.wake();
  }

  static synchronized void remove(CudaDeadlines calls) {
    WATCHED.remove(calls);
    countRanks();
  }

  /** Calls {@code each} with those of every open communicator. Any thread. */
  static void watched(Consumer<CudaDeadlines> each) {
    WATCHED.forEach(each);
  }

  private static void countRanks() {
    Backoff.setRanks(WATCHED.stream().mapToInt(CudaDeadlines::ranksHere).max().orElse(1));
  }

  @SuppressWarnings("NonAtomicVolatileUpdate") // one thread writes
  private static boolean round() {
    if (WATCHED.isEmpty()) {
      LockSupport.park(WATCHED);
    }
    LockSupport.parkNanos(TICK_NANOS);
    tick++;
    failure = null;
    WATCHED.forEach(LOOK);
    HelperThread.rethrow(failure);
    return true;
  }

  private static void look(CudaDeadlines calls) {
    try {
      calls.checkCall();
    } catch (RuntimeException | Error e) {
      // The others are looked after all the same.
      failure = e;
    }
  }

  /** A call that does not return would be an endless wait. */
  private static void isBroken(Throwable cause) {
    WATCHED.forEach(calls -> calls.cannotBeWatched(cause));
  }
}
