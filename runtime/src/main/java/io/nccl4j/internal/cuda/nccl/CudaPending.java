package io.nccl4j.internal.cuda.nccl;

import io.nccl4j.DeadlineException;
import io.nccl4j.InterruptedWaitException;
import io.nccl4j.internal.cuda.driver.Backoff;
import io.nccl4j.internal.schedule.Padded;
import io.nccl4j.internal.schedule.Wording;
import io.nccl4j.internal.schedule.Work;
import java.time.Duration;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/**
 * What NCCL was asked for last and may do in the background: a launch of a communicator that does
 * not block, or a call that waits for other ranks. The reductions made for a launch live as long.
 * The submitting thread's, but for {@link #isUnderWay}.
 */
public final class CudaPending extends Padded {
  private static final long LOOK_NANOS = 1_000_000;

  private final NcclRank rank;
  private final NcclHandle nccl;
  private final CudaHealth health;
  private final CudaDeadlines deadlines;
  private final Duration timeout;
  private final NcclReductions reductions;
  private String what;
  private @Nullable Work work;

  /** What NCCL does for a rank. */
  public CudaPending(NcclRank rank, CudaHealth health, CudaDeadlines deadlines) {
    this.rank = rank;
    this.nccl = rank.handle();
    this.reductions = rank.reductions();
    this.health = health;
    this.deadlines = deadlines;
    this.timeout = rank.config().operationTimeout();
    this.what = "creating communicator " + rank.name();
  }

  // ---- begin

  /** Notes what a launch of a work left to be done; returns whether it goes on. */
  public boolean launched(Work launch, int result) {
    if (result == NcclResults.IN_PROGRESS) {
      work = launch;
      nccl.setBusy(true);
      return true;
    }
    releaseReductions();
    return false;
  }

  /** Lets NCCL finish a call on the handle, {@code call}, that goes on in the background. */
  void callGoesOn(String call) {
    what = call;
    nccl.setBusy(true);
  }

  /** The work is over, one way or the other; its place is about to be given back. */
  public void completed(Work over) {
    if (work == over) {
      work = null;
    }
  }

  // ---- end

  /** Whether it is not known to be done. Any thread. */
  public boolean isUnderWay() {
    return nccl.isBusy();
  }

  /** Whether NCCL has done what it was asked for last; asks it. */
  public boolean isDone() {
    if (!nccl.isBusy()) {
      return true;
    }
    int result = nccl.asyncResult();
    if (result == NcclResults.IN_PROGRESS) {
      return false;
    }
    nccl.setBusy(false);
    if (result != NcclResults.SUCCESS) {
      health.fail(NcclResults.failure(result, describe()));
    }
    releaseReductions();
    return true;
  }

  /** What NCCL does, in words. */
  public String describe() {
    Work launching = work;
    return launching == null ? what : launching.describe();
  }

  /**
   * Waits until NCCL has done what it was asked for last, within the operation's deadline.
   *
   * @throws InterruptedWaitException if the calling thread is interrupted; NCCL goes on
   */
  public void await() {
    if (!isDone()) {
      await(
          timeout,
          () -> {
            Work launching = work;
            return launching == null ? what : deadlines.explain(launching);
          });
    }
  }

  /** Nobody waits for it any more: the communicator fails. */
  public void giveUp() {
    if (!isDone()) {
      health.fail(
          Wording.closedEarly(
              describe() + " was unfinished when an interrupted thread closed what it belongs to"));
    }
  }

  /**
   * Waits until NCCL is done, or fails the communicator when the time is over.
   *
   * @param explanation says what was waited for
   * @throws InterruptedWaitException if the calling thread is interrupted; NCCL goes on
   */
  public void await(Duration limit, Supplier<String> explanation) {
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
  private void releaseReductions() {
    if (reductions.isEmpty()) {
      return;
    }
    int failed;
    nccl.guard().enter();
    try {
      failed = reductions.release();
    } finally {
      nccl.guard().leave();
    }
    if (failed != NcclResults.SUCCESS) {
      health.fail(NcclResults.failure(failed, "ncclRedOpDestroy of communicator " + rank.name()));
    }
  }
}
