package io.nccl4j.internal.spi;

import io.nccl4j.NcclException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;

/**
 * A future of the program that is completed on a thread of the program's pool: what hangs on it is
 * code of the program, which may take long or throw anything, and never runs on a thread of this
 * library or on one that drives a stream.
 *
 * <p>Completing needs memory, and perhaps a thread. What could not be completed for lack of them is
 * tried again by a {@link HelperThread} until it succeeds. All that this library needs for that is
 * allocated when the future is made.
 */
public class Promise implements Runnable {
  private enum State {
    OPEN,
    SETTLED,
    RUNNING,
    DELIVERED
  }

  private static final long FIRST_WAIT_NANOS = TimeUnit.MILLISECONDS.toNanos(20);
  private static final long LONGEST_WAIT_NANOS = TimeUnit.SECONDS.toNanos(1);

  /** Those that are settled and not delivered yet; changed under the lock of the class. */
  private static volatile @Nullable Promise undelivered;

  private final CompletableFuture<Void> future = new CompletableFuture<>();
  private volatile State state = State.OPEN;
  private @Nullable NcclException failure;
  private @Nullable Promise next;
  private long lastTry;
  private long patienceNanos = FIRST_WAIT_NANOS;

  /** What the program gets. */
  public final CompletableFuture<Void> future() {
    return future;
  }

  /**
   * Lets the future be completed soon. Called once; allocates nothing that it could not do without,
   * and throws nothing.
   *
   * @param cause why it fails; null if it does not
   */
  public final void settle(@Nullable NcclException cause) {
    failure = cause;
    synchronized (Promise.class) {
      lastTry = System.nanoTime();
      state = State.SETTLED;
      next = undelivered;
      undelivered = this;
    }
    try {
      handOver();
    } catch (Throwable e) {
      // deliverAll tries again, and its caller tells.
    }
  }

  /**
   * Completes the settled futures that could not be completed before. For helper threads, again and
   * again; costs one load when there are none.
   *
   * @return whether all are complete
   * @throws RuntimeException what keeps a future from being completed for now; so with errors
   */
  public static boolean deliverAll() {
    if (undelivered == null) {
      return true;
    }
    Throwable trouble = null;
    synchronized (Promise.class) {
      long now = System.nanoTime();
      Promise before = null;
      for (Promise promise = undelivered; promise != null; promise = promise.next) {
        State seen = promise.state;
        if (seen == State.DELIVERED) {
          if (before == null) {
            undelivered = promise.next;
          } else {
            before.next = promise.next;
          }
          continue;
        }
        before = promise;
        if (seen != State.RUNNING && now - promise.lastTry > promise.patienceNanos) {
          promise.patienceNanos = Math.min(2 * promise.patienceNanos, LONGEST_WAIT_NANOS);
          try {
            promise.lastTry = now;
            promise.handOver();
          } catch (RuntimeException | Error e) {
            trouble = e;
          }
        }
      }
    }
    HelperThread.rethrow(trouble);
    return undelivered == null;
  }

  private void handOver() {
    pool().execute(this);
  }

  /** Where futures of the program run what hangs on them. */
  Executor pool() {
    return future.defaultExecutor();
  }

  /** Completes the future, on a thread of the pool. */
  @Override
  public final void run() {
    synchronized (this) {
      if (state != State.SETTLED) {
        return;
      }
      state = State.RUNNING;
    }
    State end = State.SETTLED;
    try {
      NcclException cause = failure;
      if (cause == null) {
        future.complete(null);
      } else {
        future.completeExceptionally(Failures.again(cause));
      }
      end = State.DELIVERED;
    } finally {
      state = end;
    }
  }
}
