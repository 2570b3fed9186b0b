package io.nccl4j.internal.cuda;

import io.nccl4j.AbortedException;
import io.nccl4j.DeadlineException;
import io.nccl4j.InterruptedWaitException;
import io.nccl4j.bindings.nccl.Nccl;
import io.nccl4j.internal.schedule.Padded;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.Arrays;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/**
 * What NCCL was asked for last and may do in the background: a launch of a communicator that does
 * not block, or a call that waits for other ranks. The reductions made for a launch live as long.
 * The submitting thread's, but for {@link #isUnderWay}.
 */
final class CudaPending extends Padded {
  private static final long LOOK_NANOS = 1_000_000;

  private final String name;
  private final NcclHandle nccl;
  private final CudaHealth health;
  private final CudaDeadlines deadlines;
  private final Duration timeout;
  private final MemorySegment opOut;
  private final MemorySegment scalar;
  private String what;
  private volatile boolean underWay;
  private @Nullable CudaWork work;

  /** Reductions of what is being launched, to be destroyed after that. */
  private int[] createdOps = new int[4];

  private int createdCount;

  /**
   * Of the communicator with that name.
   *
   * @param timeout how long an operation may take
   */
  CudaPending(
      String name, NcclHandle nccl, CudaHealth health, CudaDeadlines deadlines, Duration timeout) {
    this.name = name;
    this.nccl = nccl;
    this.health = health;
    this.deadlines = deadlines;
    this.timeout = timeout;
    this.opOut = nccl.arena().allocate(ValueLayout.JAVA_INT);
    this.scalar = nccl.arena().allocate(Long.BYTES, Long.BYTES);
    this.what = "creating communicator " + name;
  }

  /** Where NCCL writes the number of a new reduction. */
  MemorySegment opOut() {
    return opOut;
  }

  /** Room for one element in host memory. */
  MemorySegment scalar() {
    return scalar;
  }

  // ---- begin

  /** Notes what a launch of a work left to be done. */
  void launched(CudaWork launch, CudaStream stream, int result) {
    if (launch.createdOp >= 0) {
      if (createdCount == createdOps.length) {
        createdOps = Arrays.copyOf(createdOps, 2 * createdCount);
      }
      createdOps[createdCount++] = launch.createdOp;
      launch.createdOp = -1;
    }
    if (result == NcclResults.IN_PROGRESS) {
      work = launch;
      underWay = true;
      stream.launchesFrom(this);
    } else {
      releaseOps();
    }
  }

  /** Lets NCCL finish a call on the handle, {@code call}, that goes on in the background. */
  void callGoesOn(String call) {
    what = call;
    underWay = true;
  }

  /** The work is over, one way or the other; its place is about to be given back. */
  void completed(CudaWork over) {
    if (work == over) {
      work = null;
    }
  }

  // ---- end

  /** Whether it is not known to be done. Any thread. */
  boolean isUnderWay() {
    return underWay;
  }

  /** Whether NCCL has done what it was asked for last; asks it. */
  boolean isDone() {
    if (!underWay) {
      return true;
    }
    int result = nccl.asyncResult();
    if (result == NcclResults.IN_PROGRESS) {
      return false;
    }
    underWay = false;
    if (result != NcclResults.SUCCESS) {
      health.fail(NcclResults.failure(result, describe()));
    }
    releaseOps();
    return true;
  }

  /** What NCCL does, in words. */
  String describe() {
    CudaWork launching = work;
    return launching == null ? what : launching.describe();
  }

  /**
   * Waits until NCCL has done what it was asked for last, within the operation's deadline.
   *
   * @throws InterruptedWaitException if the calling thread is interrupted; NCCL goes on
   */
  void await() {
    if (!isDone()) {
      await(
          timeout,
          () -> {
            CudaWork launching = work;
            return launching == null ? what : deadlines.explain(launching);
          });
    }
  }

  /** Nobody waits for it any more: the communicator fails. */
  void giveUp() {
    if (!isDone()) {
      health.fail(
          new AbortedException(
              describe() + " was unfinished when an interrupted thread closed what it belongs to",
              "synchronize before closing"));
    }
  }

  /**
   * Waits until NCCL is done, or fails the communicator when the time is over.
   *
   * @param explanation says what was waited for
   * @throws InterruptedWaitException if the calling thread is interrupted; NCCL goes on
   */
  void await(Duration limit, Supplier<String> explanation) {
    long start = System.nanoTime();
    long looked = start;
    while (!isDone()) {
      long now = System.nanoTime();
      if (now - start > limit.toNanos()) {
        health.fail(
            new DeadlineException(
                "not done after " + limit.toMillis() + " ms: " + explanation.get(),
                "check the other ranks; a thread that drives several ranks must issue their"
                    + " operations in one group"));
        return;
      }
      if (now - looked > LOOK_NANOS) {
        looked = now;
        health.look();
      }
      Backoff.pause(now - start, this::describe);
    }
  }

  /**
   * Destroys the reductions made for what is launched; NCCL refuses that only when it is broken.
   */
  private void releaseOps() {
    if (createdCount == 0) {
      return;
    }
    int failed = NcclResults.SUCCESS;
    nccl.guard().enter();
    try {
      for (int i = 0; i < createdCount && !nccl.isGone(); i++) {
        int result = Nccl.ncclRedOpDestroy(createdOps[i], nccl.get());
        failed = NcclResults.isFailure(result) ? result : failed;
      }
    } finally {
      nccl.guard().leave();
    }
    createdCount = 0;
    if (failed != NcclResults.SUCCESS) {
      health.fail(NcclResults.failure(failed, "ncclRedOpDestroy of communicator " + name));
    }
  }
}
