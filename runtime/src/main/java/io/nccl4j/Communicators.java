package io.nccl4j;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;

/** The communicators of several ranks in this process, in rank order, closed together. */
public final class Communicators implements AutoCloseable, Iterable<Communicator> {
  /** What one rank does. */
  @FunctionalInterface
  public interface RankTask {
    /**
     * Runs as one rank.
     *
     * @param communicator this rank's communicator
     * @throws Exception whatever it likes; {@link Communicators#run} passes it on
     */
    void run(Communicator communicator) throws Exception;
  }

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
   * Runs {@code task} once per rank, each on a thread of its own, {@linkplain Device#bindThread
   * bound} if there are processors for all, and waits for all. If one throws, the communicators are
   * aborted so that no other rank waits for it, and its exception is thrown here with the others'
   * suppressed.
   *
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
    boolean interrupted = false;
    for (Thread thread : threads) {
      while (thread.isAlive()) {
        try {
          thread.join();
        } catch (InterruptedException e) {
          interrupted = true;
          ranks.forEach(Communicator::abort);
        }
      }
    }
    if (interrupted) {
      Thread.currentThread().interrupt();
    }
    rethrow(failures);
  }

  private void runRank(RankTask task, Communicator rank, List<Throwable> failures) {
    try {
      if (ranks.size() <= Runtime.getRuntime().availableProcessors()) {
        rank.device().bindThread();
      }
      task.run(rank);
    } catch (Throwable e) {
      synchronized (failures) {
        failures.add(e);
      }
      ranks.forEach(Communicator::abort);
    }
  }

  /** Closes all ranks' communicators; a failing one does not keep the others from being closed. */
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
