package io.nccl4j.cuda;

import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.locks.LockSupport;

/**
 * Watches calls of NCCL that do not return. The first operations of a communicator wait for their
 * peers inside NCCL, where the calling thread sees no deadline: this thread does, and makes NCCL
 * let the call go.
 */
final class CallWatch {
  /** How often it looks, in ns. */
  static final long TICK_NANOS = 20_000_000;

  private static final List<CudaDeadlines> WATCHED = new CopyOnWriteArrayList<>();
  private static final Thread THREAD =
      Thread.ofPlatform().daemon().name("nccl4j-cuda-calls").unstarted(CallWatch::run);

  /** A clock that costs nothing to read; never 0. */
  private static volatile long tick = 1;

  static {
    THREAD.start();
  }

  private CallWatch() {}

  /** The time, in ticks. */
  static long now() {
    return tick;
  }

  static void add(CudaDeadlines calls) {
    WATCHED.add(calls);
    LockSupport.unpark(THREAD);
  }

  static void remove(CudaDeadlines calls) {
    WATCHED.remove(calls);
  }

  @SuppressWarnings("NonAtomicVolatileUpdate") // one thread writes
  private static void run() {
    while (true) {
      if (WATCHED.isEmpty()) {
        LockSupport.park(WATCHED);
      }
      LockSupport.parkNanos(TICK_NANOS);
      tick++;
      for (CudaDeadlines calls : WATCHED) {
        calls.checkCall();
      }
    }
  }
}
