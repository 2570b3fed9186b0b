package io.nccl4j;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.locks.LockSupport;

/** The communicators of several ranks in this process, in rank order, closed together. */
public final class Communicators implements AutoCloseable, Iterable<Communicator> {
  /** What one rank does. */
  @FunctionalInterface
  public interface RankTask {
    /**
     * Runs as one rank.
     *
     * @param communicator this rank's communicator
     * @throws Exception any exception; {@link Communicators#run} rethrows it
     */
    void run(Communicator communicator) throws Exception;
  }

  /** How long an interrupted caller waits for ranks that were told to end. */
  private static final long LETTING_GO_NANOS = 4_000_000;

  private static final long LOOK_NANOS = 100_000;

  private final List<Communicator> ranks;

  Communicators(List<Communicator> ranks) {
    this.ranks = List.copyOf(ranks);
  }

  /** Number of ranks. */
  public int size() {
    return ranks.size();
  }

  /** The communicator of a rank. */
  public Communicator get(int rank) {
    return ranks.get(rank);
  }

  @Override
  public Iterator<Communicator> iterator() {
    return ranks.iterator();
  }

  /**
   * Runs {@code task} once per rank, each on its own thread, and waits for all. If there are enough
   * processors, each thread starts on that of its device; it is not {@linkplain Device#bindThread
   * bound}, so threads that the task starts inherit no binding.
   *
   * <p>If a task throws, the communicators are {@linkplain Communicator#abort(Throwable) aborted}
   * with its exception, so that no other rank waits for it and all know why; the exception is
   * rethrown here, with the others' suppressed. A rank whose task has ended takes part in nothing
   * until all have ended: ranks that wait for an operation it has not issued fail at once, with a
   * {@link PeerFailedException} that names it.
   *
   * <p>If the calling thread is interrupted, the communicators are aborted and the ranks' threads
   * interrupted, which ends their waits; a task that goes on regardless is not waited for.
   *
   * @throws InterruptedWaitException if the calling thread was interrupted; with the ranks'
   *     exceptions suppressed
   * @throws Exception the first exception of any rank
   */
  public void run(RankTask task) throws Exception {
    List<Throwable> failures = new ArrayList<>();
    List<Thread> threads = new ArrayList<>();
    for (Communicator rank : ranks) {
      threads.add(
          Thread.ofPlatform()
              .name("rank-" + rank.rank())
              .unstarted(() -> runRank(task, rank, failures)));
    }
    threads.forEach(Thread::start);
    try {
      for (Thread thread : threads) {
        thread.join();
      }
    } catch (InterruptedException e) {
      throw interrupted(threads, failures);
    } finally {
      ranks.forEach(rank -> Provider.get().setTaskEnded(rank, false));
    }
    rethrow(failures);
  }

  /** Ends the ranks as far as they can be ended. */
  private InterruptedWaitException interrupted(List<Thread> threads, List<Throwable> failures) {
    ranks.forEach(Communicator::abort);
    threads.forEach(Thread::interrupt);
    long end = System.nanoTime() + LETTING_GO_NANOS;
    StringBuilder running = new StringBuilder();
    for (Thread thread : threads) {
      while (thread.isAlive() && end - System.nanoTime() > 0) {
        LockSupport.parkNanos(LOOK_NANOS);
      }
      if (thread.isAlive()) {
        running.append(running.isEmpty() ? "" : ", ").append(thread.getName());
      }
    }
    InterruptedWaitException e =
        new InterruptedWaitException(
            "interrupted while the ranks were running; they are aborted",
            running.isEmpty() ? "" : "these threads have not ended yet: " + running);
    synchronized (failures) {
      failures.forEach(e::addSuppressed);
    }
    Thread.currentThread().interrupt();
    return e;
  }

  private void runRank(RankTask task, Communicator rank, List<Throwable> failures) {
    try {
      if (ranks.size() <= Runtime.getRuntime().availableProcessors()) {
        Provider.get().placeThread(rank.device());
      }
      task.run(rank);
      Provider.get().setTaskEnded(rank, true);
    } catch (Throwable e) {
      synchronized (failures) {
        failures.add(e);
      }
      abort(rank, e);
      Provider.get().setTaskEnded(rank, true);
    }
  }

  /** The failing rank comes first: the others learn from it whose failure it is. */
  private void abort(Communicator failed, Throwable e) {
    failed.abort(e);
    // What ended it may have begun elsewhere: those who have not heard of that are not misled.
    List<Integer> began = e instanceof NcclException known ? known.failedRanks() : List.of();
    NcclException reason =
        new AbortedException(
                "rank " + failed.rank() + "'s task ended with " + e,
                "see that exception",
                began.isEmpty() ? List.of(failed.rank()) : began)
            .causedBy(e);
    // It may have closed its communicator before, and be heard by nobody.
    ranks.forEach(other -> other.abort(reason));
  }

  /** Closes all ranks' communicators, even if closing one of them fails. */
  @Override
  public void close() {
    RuntimeException failure = null;
    for (Communicator rank : ranks) {
      try {
        rank.close();
      } catch (RuntimeException e) {
        if (failure == null) {
          failure = e;
        } else {
          failure.addSuppressed(e);
        }
      }
    }
    if (failure != null) {
      throw failure;
    }
  }

  private static void rethrow(List<Throwable> failures) throws Exception {
    if (failures.isEmpty()) {
      return;
    }
    Throwable first = failures.getFirst();
    failures.stream().skip(1).filter(e -> e != first).forEach(first::addSuppressed);
    switch (first) {
      case Error error -> throw error;
      case Exception exception -> throw exception;
      default -> throw new InternalErrorException("a rank failed", "see the cause").causedBy(first);
    }
  }
}
