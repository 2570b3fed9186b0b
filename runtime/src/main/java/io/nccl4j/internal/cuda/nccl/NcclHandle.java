package io.nccl4j.internal.cuda.nccl;

import io.nccl4j.bindings.nccl.Nccl;
import io.nccl4j.internal.cuda.driver.Guard;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;
import org.jspecify.annotations.Nullable;

/**
 * NCCL's communicator of one rank, until it is destroyed at close or aborted at the first failure,
 * and the memory that NCCL writes to until then. Native calls with the handle are made under the
 * guard, which keeps an abort from another thread out.
 */
public final class NcclHandle {
  private static final Logger LOG = LogManager.getLogger(NcclHandle.class);
  private static final long STUCK_NANOS = 50_000_000;

  private final String name;
  private final Duration closeTimeout;
  private final Arena arena = Arena.ofShared();
  private final MemorySegment asyncOut = arena.allocate(ValueLayout.JAVA_INT);
  private final Guard guard = new Guard();

  @SuppressWarnings("unused") // kept for NCCL, which has only the address
  private Object kept = MemorySegment.NULL;

  /** NULL when it was destroyed or aborted. Under the guard. */
  private MemorySegment handle;

  private @Nullable MemorySegment out;
  private volatile @Nullable Thread ending;
  private volatile @Nullable Thread calling;

  /** Whether NCCL may go on in the background with what it was asked for last. */
  private volatile boolean busy;

  /** Owns {@code handle} from now on. */
  public NcclHandle(MemorySegment handle, String name, Duration closeTimeout) {
    this.handle = handle;
    this.name = name;
    this.closeTimeout = closeTimeout;
  }

  public Guard guard() {
    return guard;
  }

  /** NCCL's handle, NULL after a failure; under the guard. */
  public MemorySegment get() {
    return handle;
  }

  /** Whether it was destroyed or aborted; under the guard. */
  boolean isGone() {
    return handle.equals(MemorySegment.NULL);
  }

  boolean isBusy() {
    return busy;
  }

  void setBusy(boolean now) {
    busy = now;
  }

  /** Memory that NCCL may write to until the communicator is closed. */
  public Arena arena() {
    return arena;
  }

  /** Where NCCL writes a pointer, one call at a time; it may do so after the call. */
  public MemorySegment out() {
    MemorySegment known = out;
    if (known == null) {
      known = arena.allocate(ValueLayout.ADDRESS);
      out = known;
    }
    known.set(ValueLayout.ADDRESS, 0, MemorySegment.NULL);
    return known;
  }

  /** Keeps something reachable as long as this communicator, which NCCL has the address of. */
  public void keep(Object object) {
    kept = object;
  }

  /** Whether a call of NCCL is under way, which may last as long as an operation may. */
  boolean isInACall() {
    if (!guard.enterWithin(STUCK_NANOS)) {
      return true;
    }
    guard.leave();
    return false;
  }

  /**
   * A thread makes a call that may last longer than its caller waits, and writes to memory of this.
   * There is one such call at a time.
   */
  void setCalling(Thread thread) {
    calling = thread;
  }

  /** What NCCL says of what it does in the background; asks it. */
  int asyncResult() {
    if (!guard.tryEnter()) {
      // Another thread is in a call, and will know.
      return NcclResults.IN_PROGRESS;
    }
    try {
      if (isGone()) {
        return NcclResults.SUCCESS;
      }
      int result = Nccl.ncclCommGetAsyncError(handle, asyncOut);
      return result != NcclResults.SUCCESS ? result : asyncOut.get(ValueLayout.JAVA_INT, 0);
    } finally {
      guard.leave();
    }
  }

  // ---- its end

  /**
   * Lets kernels and calls that wait for peers end; NCCL frees what it holds. Returns whether there
   * was something to abort.
   *
   * @param inCall whether it is known that a call waits for peers
   */
  boolean abort(boolean inCall) {
    // A call that waits for peers must be let out by the abort itself.
    boolean entered = guard.enterWithin(inCall ? 0 : STUCK_NANOS);
    MemorySegment aborted = handle;
    handle = MemorySegment.NULL;
    if (entered) {
      guard.leave();
    }
    if (aborted.equals(MemorySegment.NULL)) {
      return false;
    }
    ending = abortInBackground(aborted, name, entered ? () -> {} : () -> letOut(aborted));
    return true;
  }

  /** Ends a call that another thread is in before what it uses is freed. */
  private void letOut(MemorySegment stuck) {
    if (Features.REVOKE.isPresent()) {
      int result = Nccl.ncclCommRevoke(stuck, 0);
      if (NcclResults.isFailure(result)) {
        LOG.warn(NcclResults.failure(result, "revoking communicator " + name));
      }
      if (guard.enterWithin(closeTimeout.toNanos())) {
        guard.leave();
      }
    }
  }

  /**
   * Aborts a communicator on a thread of its own: that may wait for the device, on which another
   * rank's kernel may wait for the caller's thread.
   */
  public static Thread abortInBackground(MemorySegment handle, String name, Runnable before) {
    return inBackground(
        () -> {
          before.run();
          int result = Nccl.ncclCommAbort(handle);
          if (NcclResults.isFailure(result)) {
            LOG.warn(NcclResults.failure(result, "aborting communicator " + name));
          }
        },
        name);
  }

  static Thread inBackground(Runnable end, String name) {
    return Thread.ofPlatform().daemon().name("nccl4j-end-" + name).start(end);
  }

  /** Destroys it on a thread of its own, unless it is gone. */
  public void destroy() {
    guard.enter();
    MemorySegment last = handle;
    handle = MemorySegment.NULL;
    guard.leave();
    if (!last.equals(MemorySegment.NULL)) {
      ending =
          inBackground(
              () -> {
                int result = Nccl.ncclCommDestroy(last);
                if (NcclResults.isFailure(result)) {
                  LOG.warn(NcclResults.failure(result, "destroying communicator " + name));
                  NcclResults.check(Nccl.ncclCommAbort(last), "ncclCommAbort");
                }
              },
              name);
    }
  }

  /**
   * Waits until it is destroyed or aborted, and then frees its memory; where it does not end in
   * time, that is left to NCCL.
   *
   * @param releasing lets go of what NCCL waits for; null if nothing does
   */
  public void awaitEnd(@Nullable Thread releasing) {
    try {
      if (hasEnded(releasing) && hasEnded(ending) && hasEnded(calling)) {
        arena.close();
      } else {
        LOG.warn(
            "NCCL has not ended communicator {} after {} ms; it goes on in the background",
            name,
            closeTimeout.toMillis());
      }
    } catch (InterruptedException e) {
      // Nothing depends on it.
      inBackground(() -> awaitEnd(releasing), name);
      Thread.currentThread().interrupt();
    }
  }

  private boolean hasEnded(@Nullable Thread thread) throws InterruptedException {
    return thread == null || thread.join(closeTimeout);
  }
}
