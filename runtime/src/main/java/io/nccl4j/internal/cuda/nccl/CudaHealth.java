package io.nccl4j.internal.cuda.nccl;

import io.nccl4j.AbortedException;
import io.nccl4j.Communicator.State;
import io.nccl4j.NcclException;
import io.nccl4j.internal.schedule.FailureNotice;
import io.nccl4j.internal.spi.Failures;
import java.util.concurrent.atomic.AtomicReference;
import org.jspecify.annotations.Nullable;

/**
 * Whether one rank's communicator can go on: its first failure, which makes NCCL stop and fails
 * those of this process with it, and the failures of NCCL and of the other ranks, which it looks
 * for. Thread-safe.
 */
public final class CudaHealth {
  private final NcclRank rank;
  private final Team team;
  private final NcclHandle nccl;
  private final CudaHolders holders;
  private final FailureNotice notice;
  private final AtomicReference<@Nullable NcclException> failure = new AtomicReference<>();

  /** Why operations were stopped without ending the communicator. */
  private volatile @Nullable AbortedException revoked;

  private volatile long failedNanos;

  /** Whether the program hears of the failure, by an operation if not at once. */
  private volatile boolean told;

  /** The health of a rank. */
  public CudaHealth(NcclRank rank, Team team, CudaHolders holders, FailureNotice notice) {
    this.rank = rank;
    this.team = team;
    this.nccl = rank.handle();
    this.holders = holders;
    this.notice = notice;
  }

  /** The first failure, null while there is none. */
  public @Nullable NcclException failure() {
    return failure.get();
  }

  /** Throws the first failure if there is one. */
  public void throwIfFailed() {
    NcclException cause = failure.get();
    if (cause != null) {
      told();
      throw Failures.again(cause);
    }
  }

  /** Why operations were stopped, by a failure or without one; null if they were not. */
  public @Nullable NcclException stopped() {
    NcclException cause = failure.get();
    return cause == null ? revoked : cause;
  }

  /**
   * Why operations that ended did not succeed, after a look whether the ranks here called the same:
   * NCCL may end operations that contradict each other without a word. Null if they did.
   */
  public @Nullable NcclException outcome() {
    if (failure.get() == null && revoked != null) {
      return revoked;
    }
    if (failure.get() == null) {
      NcclException e = team.mismatch(rank);
      if (e != null) {
        fail(e);
      }
    }
    NcclException found = failure.get();
    if (found != null) {
      told();
    }
    return found;
  }

  /** The program hears of the failure. */
  public void told() {
    told = true;
  }

  /** A failure that the program has not heard of, after a last look at the ranks here. */
  public @Nullable NcclException untold() {
    NcclException known = failure.get();
    if (known == null) {
      return outcome();
    }
    return told ? null : Failures.again(known);
  }

  /** Fails this rank and those of this process with it, and makes NCCL stop. Any thread. */
  public void fail(NcclException cause) {
    fail(cause, false);
  }

  /** The same while a thread is in a call of NCCL that waits, and has to be let out. */
  void failInCall(NcclException cause) {
    fail(cause, true);
  }

  private void fail(NcclException cause, boolean inCall) {
    if (!failure.compareAndSet(null, cause)) {
      return;
    }
    failedNanos = System.nanoTime();
    notice.failed(cause);
    // First the reason: NCCL lets waiting ranks go, and says only that it was aborted.
    team.failed(rank, cause);
    if (nccl.abort(inCall)) {
      holders.releaseInBackground();
    }
  }

  /** Operations from here on fail with this, though the communicator has not. */
  public void revoke(AbortedException reason) {
    revoked = reason;
  }

  public @Nullable AbortedException revoked() {
    return revoked;
  }

  /** Asks NCCL whether something went wrong in the background, and the other ranks here. */
  public void look() {
    if (failure.get() == null && revoked == null) {
      int result = nccl.isBusy() ? NcclResults.IN_PROGRESS : nccl.asyncResult();
      NcclException e =
          NcclResults.isFailure(result)
              ? NcclResults.failure(result, "communicator " + rank.name())
              : team.contradiction(rank);
      if (e != null) {
        fail(e);
      }
    }
  }

  /** Whether NCCL was told to end long ago: what still runs on the device will not end. */
  public boolean shouldHaveEnded(long now) {
    return failure.get() != null
        && failedNanos != 0
        && now - failedNanos > rank.config().closeTimeout().toNanos();
  }

  /** After a look. */
  public State state() {
    look();
    NcclException cause = stopped();
    return cause == null
        ? State.READY
        : cause instanceof AbortedException ? State.ABORTED : State.FAILED;
  }
}
