package io.nccl4j.jmh;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.Communicators;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;

/**
 * Ranks that do the same steps, each on a thread: rank 0 on the caller's, the others on their own.
 * A step begins when the caller says so and ends when the slowest rank is done, so that a
 * collective in which rank 0 is done early is not measured too short. Between steps ranks meet
 * through shared memory, which costs what {@link LockstepBenchmark#nothing} shows.
 *
 * @param <R> a rank's part
 */
final class Lockstep<R extends Lockstep.Rank> implements AutoCloseable {
  /** A rank's part of a step, and what it owns for that. */
  interface Rank extends AutoCloseable {
    /** Does one step, to the end of its own part. */
    void step();

    @Override
    void close();
  }

  /** So many longs lie between counters that different threads write. */
  private static final int STRIDE = 16;

  private static final long STOP = Long.MAX_VALUE;
  private static final int SPINS = 10_000;
  private static final VarHandle COUNTER = MethodHandles.arrayElementVarHandle(long[].class);

  private final Communicators communicators;
  private final List<R> ranks = new ArrayList<>();
  private final List<Thread> threads = new ArrayList<>();

  /** The step that may begin, and from 1 on the steps that each other rank has done. */
  private final long[] counters;

  private long steps;
  private volatile @Nullable Throwable failure;

  /**
   * Connects ranks.
   *
   * @param part what a rank does; made on the caller's thread
   */
  Lockstep(Backend backend, int nranks, Function<Communicator, R> part) {
    communicators = Communicator.initAll(backend, nranks);
    counters = new long[(nranks + 1) * STRIDE];
    try {
      communicators.forEach(communicator -> ranks.add(part.apply(communicator)));
    } catch (RuntimeException e) {
      ranks.forEach(Rank::close);
      communicators.close();
      throw e;
    }
    communicators.get(0).device().bindThread();
    for (int rank = 1; rank < nranks; rank++) {
      int number = rank;
      threads.add(Thread.ofPlatform().daemon().name("rank-" + rank).start(() -> follow(number)));
    }
  }

  private void follow(int rank) {
    communicators.get(rank).device().bindThread();
    try {
      for (long step = 1; await(0, step) != STOP; step++) {
        ranks.get(rank).step();
        COUNTER.setRelease(counters, rank * STRIDE, step);
      }
    } catch (Throwable e) {
      failure = e;
      communicators.forEach(Communicator::abort);
    }
  }

  /** Waits until a counter has reached a value, or a rank has failed; returns the counter. */
  private long await(int index, long value) {
    for (int spins = 0; ; spins++) {
      long reached = (long) COUNTER.getAcquire(counters, index * STRIDE);
      if (reached >= value) {
        return reached;
      }
      if (failure != null) {
        return STOP;
      }
      if (spins < SPINS) {
        Thread.onSpinWait();
      } else {
        // More ranks than processors.
        Thread.yield();
      }
    }
  }

  /** One step of all ranks. */
  void step() {
    steps++;
    COUNTER.setRelease(counters, 0, steps);
    ranks.getFirst().step();
    for (int rank = 1; rank < ranks.size(); rank++) {
      await(rank, steps);
    }
    throwIfFailed();
  }

  private void throwIfFailed() {
    Throwable cause = failure;
    if (cause != null) {
      throw new IllegalStateException("a rank failed", cause);
    }
  }

  /** The part of a rank; only between steps. */
  R rank(int rank) {
    return ranks.get(rank);
  }

  @Override
  public void close() {
    COUNTER.setRelease(counters, 0, STOP);
    try {
      for (Thread thread : threads) {
        thread.join();
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new IllegalStateException("interrupted before the ranks had ended", e);
    }
    ranks.forEach(Rank::close);
    communicators.close();
    throwIfFailed();
  }
}
