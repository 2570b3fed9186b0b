package io.nccl4j.internal.cuda;

import io.nccl4j.AbortedException;
import io.nccl4j.InternalErrorException;
import io.nccl4j.InterruptedWaitException;
import io.nccl4j.NcclException;
import io.nccl4j.internal.cuda.driver.Backoff;
import io.nccl4j.internal.cuda.driver.Gpu;
import io.nccl4j.internal.cuda.nccl.CudaRank;
import io.nccl4j.internal.schedule.Wording;
import java.util.function.BooleanSupplier;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/**
 * Waiting for what is in a stream: meanwhile faults are looked for, and the deadline is kept of
 * what lies first.
 */
final class StreamWaits {
  private static final long LOOK_NANOS = 1_000_000;

  /** Between two looks at what has been passed before all has: not to be done at the end. */
  private static final long MARK_NANOS = 100_000;

  private final Gpu gpu;
  private final StreamQueue queue;

  // What is waited for, in words; made once, since waiting allocates nothing.
  private final Supplier<String> first;
  private final Supplier<String> event;

  private volatile boolean isStuck;

  StreamWaits(Gpu gpu, StreamQueue queue) {
    this.gpu = gpu;
    this.queue = queue;
    first = queue::describeFirst;
    event = () -> "an event behind " + queue.describeFirst();
  }

  /** What is waited for. */
  StreamQueue queue() {
    return queue;
  }

  /** Whether the device was told to end what is in the stream and does not: it ends nothing. */
  boolean isStuck() {
    return isStuck;
  }

  /**
   * Waits until the device has passed an entry, or the time is over.
   *
   * @throws InterruptedWaitException if the calling thread is interrupted
   */
  boolean awaitPosition(long position, long timeoutNanos) {
    return awaitPosition(position, timeoutNanos, true);
  }

  /**
   * Waits until the device has passed everything. Works that take longer, or that an interrupted
   * thread would wait for, are given up: their communicators fail.
   *
   * @return false if it has not, because it waits for another stream
   */
  boolean finish(long timeoutNanos) {
    try {
      if (awaitPosition(queue.next(), timeoutNanos)) {
        return true;
      }
      giveUp(
          Wording.closedEarly(
              queue.describeFirst() + " was unfinished when its stream was closed"));
    } catch (InterruptedWaitException e) {
      giveUp(
          Wording.closedEarly(
              queue.describeFirst()
                  + " was unfinished when its stream was closed by an interrupted thread"));
    }
    return awaitPosition(queue.next(), timeoutNanos, false);
  }

  private void giveUp(AbortedException reason) {
    queue.ranks().forEach(rank -> rank.health().fail(reason));
  }

  private boolean awaitPosition(long position, long timeoutNanos, boolean interruptible) {
    if (isStuck) {
      return true;
    }
    long start = System.nanoTime();
    long progress = start;
    long looked = start;
    long marked = start;
    long seen = queue.head();
    while (!queue.hasPassed(position)) {
      long now = System.nanoTime();
      if (now - start > timeoutNanos) {
        return false;
      }
      if (now - marked > MARK_NANOS && position - queue.head() > 1) {
        marked = now;
        boolean ignored = queue.passMarks();
      }
      if (queue.head() != seen) {
        seen = queue.head();
        progress = now;
      }
      if (now - looked > LOOK_NANOS) {
        looked = now;
        queue.look();
        checkDeadline(now - progress);
      }
      if (interruptible) {
        Backoff.pause(now - start, first);
      } else {
        Backoff.pauseUninterruptibly(now - start);
      }
    }
    return true;
  }

  /**
   * Waits until the device has passed one more entry.
   *
   * @throws InterruptedWaitException if the calling thread is interrupted
   */
  void awaitHead() {
    boolean ignored = awaitHead(Long.MAX_VALUE, true);
  }

  /** The same, within a time; whether it was enough. */
  boolean awaitHead(long timeoutNanos) {
    return awaitHead(timeoutNanos, true);
  }

  /** The same, but an interrupt does not end it. */
  void awaitHeadUninterruptibly() {
    boolean ignored = awaitHead(Long.MAX_VALUE, false);
  }

  private boolean awaitHead(long timeoutNanos, boolean interruptible) {
    if (isStuck) {
      queue.throwIfFailed();
    }
    return queue.isEmpty() || awaitPosition(queue.head() + 1, timeoutNanos, interruptible);
  }

  /**
   * Waits until an event that was recorded here is complete.
   *
   * @throws InterruptedWaitException if the calling thread is interrupted
   */
  void await(BooleanSupplier isReached) {
    long start = System.nanoTime();
    long looked = start;
    while (!isReached.getAsBoolean()) {
      long now = System.nanoTime();
      if (now - looked > LOOK_NANOS) {
        looked = now;
        queue.look();
        checkDeadline(now - start);
      }
      Backoff.pause(now - start, event);
    }
  }

  private void checkDeadline(long waitedNanos) {
    Slot slot = queue.first();
    checkDeadline(slot.works, slot.graph, waitedNanos);
    for (CudaRank rank : slot.ranks()) {
      if (rank.health().shouldHaveEnded(System.nanoTime())) {
        throw stuck(rank);
      }
    }
  }

  private static void checkDeadline(
      @Nullable CudaWork work, @Nullable LaunchedGraph graph, long waitedNanos) {
    if (work != null) {
      work.rank.deadlines().check(work, waitedNanos);
    } else if (graph != null) {
      graph.checkDeadline(waitedNanos);
    }
  }

  /** Nothing of this stream may be touched again. */
  private NcclException stuck(CudaRank rank) {
    NcclException e =
        new InternalErrorException(
            "communicator "
                + rank.name()
                + " was aborted, but "
                + gpu
                + " still runs its work: "
                + queue.describeFirst(),
            "restart the process");
    NcclException cause = rank.health().failure();
    if (cause != null) {
      e.causedBy(cause);
    }
    queue.fail(e, queue.head());
    isStuck = true;
    return e;
  }

  /** Keeps the deadline of what lies first in the stream, for a thread that is not its user. */
  final class Patience {
    private long seen = queue.head();
    private long since = System.nanoTime();

    void checkDeadline() {
      long now = System.nanoTime();
      CudaWork work = null;
      LaunchedGraph graph = null;
      queue.guard().enter();
      try {
        if (queue.head() != seen || queue.isEmpty()) {
          seen = queue.head();
          since = now;
          return;
        }
        Slot slot = queue.first();
        work = slot.works;
        graph = slot.graph;
      } finally {
        queue.guard().leave();
      }
      StreamWaits.checkDeadline(work, graph, now - since);
    }
  }

  Patience newPatience() {
    return new Patience();
  }
}
