package io.nccl4j.internal.cuda;

import io.nccl4j.InvalidUsageException;
import io.nccl4j.internal.cuda.driver.Backoff;
import io.nccl4j.internal.cuda.nccl.CudaHealth;
import io.nccl4j.internal.cuda.nccl.CudaHolders;
import io.nccl4j.internal.cuda.nccl.CudaRank;
import io.nccl4j.internal.schedule.GroupScope;
import io.nccl4j.internal.schedule.Wording;
import io.nccl4j.internal.schedule.WorkFifo;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicLong;
import org.jspecify.annotations.Nullable;

/** The operations and graphs of a communicator that are not complete, and waiting for their end. */
final class CudaBacklog {
  private final String name;
  private final Wording wording;
  private final WorkFifo<CudaWork> fifo;
  private final CudaHolders holders;
  private final CudaHealth health;
  private final Duration closeTimeout;
  private final AtomicLong timesFull = new AtomicLong();
  private final AtomicLong waitedNanos = new AtomicLong();

  /** What of a rank is not complete. */
  CudaBacklog(CudaRank rank, WorkFifo<CudaWork> fifo) {
    name = rank.name();
    wording = rank.self().wording();
    this.fifo = fifo;
    holders = rank.holders();
    health = rank.health();
    closeTimeout = rank.config().closeTimeout();
  }

  /** How often the FIFO was full. */
  long timesFull() {
    return timesFull.get();
  }

  /** How long was waited for room in the FIFO, in ns. */
  long waitedNanos() {
    return waitedNanos.get();
  }

  /** Whether something is not complete; asks CUDA. */
  boolean isUnfinished() {
    pollStreams();
    return holders.unfinishedGraphs() > 0 || fifo.oldestInUse() != null;
  }

  /** Learns what is complete by now. */
  private void pollStreams() {
    for (int i = 0; i < fifo.capacity(); i++) {
      CudaWork work = fifo.at(i);
      CudaStream stream = work.isInUse() ? CudaStream.of(work.stream) : null;
      if (stream != null && !stream.isCapturing()) {
        stream.queue().poll();
      }
    }
    holders.poll();
  }

  /** Throws if a group is open on this thread or operations are unfinished. */
  void requireIdle(String what) {
    requireNoGroup(what);
    if (isUnfinished()) {
      throw new InvalidUsageException(
          what + ": operations of communicator " + name + " are unfinished",
          "synchronize their streams first");
    }
  }

  static void requireNoGroup(String what) {
    if (GroupScope.isOpen()) {
      throw new InvalidUsageException(
          what + ": a group is open on this thread", "launch or close the group first");
    }
  }

  /**
   * Waits, by asking the streams, until the FIFO has room.
   *
   * @throws io.nccl4j.InterruptedWaitException if the calling thread is interrupted
   */
  void awaitRoom() {
    long start = System.nanoTime();
    timesFull.incrementAndGet();
    try {
      while (!fifo.hasRoom()) {
        CudaWork oldest = fifo.oldest();
        CudaStream stream = CudaStream.of(oldest.stream);
        if (stream != null) {
          stream.awaitLaunches();
          stream.waits().awaitHead();
        }
      }
    } finally {
      waitedNanos.addAndGet(System.nanoTime() - start);
    }
  }

  /**
   * NCCL has stopped what ran: it leaves the streams, unless it is queued behind other work.
   * Nothing depends on it, so that an interrupted thread goes on at once.
   */
  void awaitStopped() {
    long start = System.nanoTime();
    while (isUnfinished()
        && System.nanoTime() - start < closeTimeout.toNanos()
        && !Thread.currentThread().isInterrupted()) {
      Backoff.pauseUninterruptibly(System.nanoTime() - start);
    }
  }

  /**
   * Waits for the end of everything, which is given up after the close timeout, or at once on an
   * interrupted thread.
   */
  void finish() {
    long start = System.nanoTime();
    long timeout = closeTimeout.toNanos();
    while (isUnfinished()) {
      CudaWork oldest = fifo.oldestInUse();
      CudaStream stream = oldest == null ? null : CudaStream.of(oldest.stream);
      if (oldest != null && stream != null && stream.queue().poll() && oldest.isInUse()) {
        throw wording.inOpenGroup();
      }
      long waited = System.nanoTime() - start;
      boolean interrupted = Thread.currentThread().isInterrupted();
      if ((waited > timeout || interrupted) && health.failure() == null) {
        health.fail(
            Wording.closedEarly(
                describe(oldest)
                    + " was unfinished when its communicator was closed"
                    + (interrupted ? " by an interrupted thread" : "")));
      } else if (waited / 2 > timeout) {
        throw new InvalidUsageException(
            describe(oldest) + " cannot be given up: it is queued behind other work",
            "close the stream first");
      }
      Backoff.pauseUninterruptibly(waited);
    }
  }

  private static String describe(@Nullable CudaWork work) {
    return work == null ? "a graph" : work.describe();
  }
}
