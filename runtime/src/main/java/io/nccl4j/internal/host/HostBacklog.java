package io.nccl4j.internal.host;

import io.nccl4j.InterruptedWaitException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.internal.host.life.Health;
import io.nccl4j.internal.host.progress.Progress;
import io.nccl4j.internal.schedule.WorkFifo;
import io.nccl4j.internal.spi.Failures;
import java.util.concurrent.atomic.AtomicLong;

/** The operations and graphs of a rank that are not complete, and waiting for their end. */
final class HostBacklog {
  private final HostRank rank;
  private final WorkFifo<HostWork> fifo;
  private final Health health;
  private final AtomicLong timesFull = new AtomicLong();
  private final AtomicLong waitedNanos = new AtomicLong();

  /** What of a rank is not complete. */
  HostBacklog(HostRank rank, WorkFifo<HostWork> fifo) {
    this.rank = rank;
    this.fifo = fifo;
    health = rank.health();
  }

  /** How often the FIFO was full. */
  long timesFull() {
    return timesFull.get();
  }

  /** How long was waited for room in the FIFO, in ns. */
  long waitedNanos() {
    return waitedNanos.get();
  }

  // ---- room for one more

  /**
   * Drives the oldest work, whose place bounds the room. That nothing at all moves can last as long
   * as an operation may: a place that nobody gives back any more is an error, not an endless wait.
   *
   * @throws NcclException why this communicator has failed, by that deadline for example
   */
  void awaitRoom() {
    long start = System.nanoTime();
    long timeout = rank.config().operationTimeout().toNanos();
    timesFull.incrementAndGet();
    try {
      HostWork oldest = null;
      long head = 0;
      long since = start;
      while (!fifo.hasRoom()) {
        requireHealthy();
        HostStream stream = HostStream.of(fifo.oldest().stream);
        long now = System.nanoTime();
        long position = stream == null ? 0 : stream.head();
        if (fifo.oldest() != oldest || position != head) {
          oldest = fifo.oldest();
          head = position;
          since = now;
        } else if (now - since >= timeout) {
          boolean queued = stream != null && stream.unfinished().holds(fifo.oldest());
          long next = rank.numbers().collectives() + 1;
          health.fail(rank.explanation().noRoom(timeout, next, queued));
          continue;
        }
        if (stream == null || !driveHead(stream, timeout - (now - since))) {
          Progress.helpAll("room in the work FIFO");
        }
      }
    } finally {
      waitedNanos.addAndGet(System.nanoTime() - start);
    }
    requireHealthy();
  }

  private void requireHealthy() {
    health.look();
    NcclException cause = health.failure();
    if (cause != null) {
      rank.told();
      throw Failures.again(cause);
    }
  }

  /**
   * Drives a stream until its first task is done.
   *
   * @return false if the stream is empty
   */
  private static boolean driveHead(HostStream stream, long timeoutNanos) {
    long head = stream.head();
    if (head == stream.tail()) {
      return false;
    }
    Progress.drive(stream, head + 1, timeoutNanos);
    return true;
  }

  // ---- the end of everything

  /**
   * Waits for the end of everything, which is given up after the close timeout, or when the thread
   * is interrupted.
   */
  void finish() {
    long start = System.nanoTime();
    boolean interrupted = false;
    try {
      while (true) {
        try {
          finishWorks(start, interrupted);
          finishGraphs(start, interrupted);
          return;
        } catch (InterruptedWaitException e) {
          interrupted = Thread.interrupted();
        }
      }
    } finally {
      if (interrupted) {
        Thread.currentThread().interrupt();
      }
    }
  }

  private void finishWorks(long start, boolean interrupted) {
    long timeout = rank.config().closeTimeout().toNanos();
    HostWork work = rank.activity().anyInUse();
    while (work != null) {
      HostStream stream = HostStream.of(work.stream);
      if (stream != null) {
        long left = timeout - (System.nanoTime() - start);
        if (-left > timeout) {
          throw new InvalidUsageException(
              work.describe()
                  + " cannot be given up: it is queued behind the work of another communicator",
              "close the stream first");
        }
        if ((left <= 0 || interrupted) && health.isGood()) {
          rank.closeEarly(
              work.describe()
                  + " was unfinished when its communicator was closed"
                  + (interrupted ? " by an interrupted thread" : "")
                  + ", waiting for "
                  + rank.explanation().missing(work));
        }
        if (!driveHead(stream, Math.max(left, 1_000_000)) && work.isInUse()) {
          throw rank.wording().inOpenGroup();
        }
      }
      work = rank.activity().anyInUse();
    }
  }

  private void finishGraphs(long start, boolean interrupted) {
    String name = rank.communicator().name();
    long timeout = rank.config().closeTimeout().toNanos();
    while (rank.activity().graphs().get() > 0) {
      long left = timeout - (System.nanoTime() - start);
      if (-left > timeout) {
        throw new InvalidUsageException(
            "communicator "
                + name
                + ": a graph cannot be given up, because it is queued behind the work of another"
                + " communicator",
            "close the stream first");
      }
      if ((left <= 0 || interrupted) && health.isGood()) {
        rank.closeEarly("a graph was unfinished when communicator " + name + " was closed");
      }
      Progress.helpAll("the end of a graph");
    }
  }
}
