package io.nccl4j.internal.cuda.nccl;

import io.nccl4j.DeadlineException;
import io.nccl4j.InterruptedWaitException;
import io.nccl4j.NcclException;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicReference;
import org.jspecify.annotations.Nullable;

/**
 * Makes a call of NCCL that waits for other ranks on a thread of its own, so that a deadline and an
 * interrupt can end the waiting.
 */
final class Patiently {
  /** A call; it throws what NCCL reports. */
  interface Call {
    void run();
  }

  /** What ends the wait for the call. */
  interface Wait {
    /** The thread that makes the call has started. */
    default void callIsMadeBy(Thread thread) {}

    /** Asked again and again: why there is nothing to wait for any more; null otherwise. */
    @Nullable NcclException over();

    /**
     * The failure of another rank, which may have made NCCL end the call; null if there is none.
     */
    @Nullable NcclException ofPeer();

    /** What to throw at the deadline. */
    NcclException late();

    /** Makes NCCL let the call go: the caller waits no longer. */
    void giveUp(NcclException reason);
  }

  private static final Duration STEP = Duration.ofMillis(10);
  private static final Duration LETTING_GO = Duration.ofSeconds(2);

  private Patiently() {}

  /**
   * Returns when the call has.
   *
   * @param name of the thread
   * @throws NcclException what the call throws, or {@code wait} says. Where another rank's deadline
   *     or failure made NCCL end the call, that: NCCL says only that something was aborted, or that
   *     another rank has a problem
   */
  static void run(String name, Call call, Duration timeout, Wait wait) {
    AtomicReference<@Nullable Throwable> thrown = new AtomicReference<>();
    Thread thread =
        Thread.ofPlatform()
            .daemon()
            .name(name)
            .start(
                () -> {
                  try {
                    call.run();
                  } catch (RuntimeException | Error e) {
                    thrown.set(e);
                  }
                });
    wait.callIsMadeBy(thread);
    try {
      NcclException e = await(thread, timeout, wait);
      if (e != null) {
        wait.giveUp(e);
        // What NCCL writes to stays with the thread, should that not be enough.
        thread.join(LETTING_GO);
        throw e;
      }
    } catch (InterruptedException e) {
      InterruptedWaitException interrupted =
          new InterruptedWaitException("the wait for other ranks was interrupted", "");
      interrupted.causedBy(e);
      wait.giveUp(interrupted);
      Thread.currentThread().interrupt();
      throw interrupted;
    }
    switch (thrown.get()) {
      case null -> {}
      case NcclException e -> {
        NcclException first = wait.ofPeer();
        boolean saysMore = isDeadline(first) || e.result() == NcclException.Result.REMOTE_ERROR;
        throw first != null && saysMore ? first : e;
      }
      case RuntimeException e -> throw e;
      case Throwable e -> throw new AssertionError("a call of NCCL failed", e);
    }
  }

  private static boolean isDeadline(@Nullable NcclException e) {
    Throwable cause = e;
    while (cause != null && !(cause instanceof DeadlineException)) {
      cause = cause.getCause();
    }
    return cause != null;
  }

  private static @Nullable NcclException await(Thread thread, Duration timeout, Wait wait)
      throws InterruptedException {
    long start = System.nanoTime();
    while (!thread.join(STEP)) {
      NcclException e = wait.over();
      if (e != null) {
        return e;
      }
      if (System.nanoTime() - start > timeout.toNanos()) {
        return wait.late();
      }
    }
    return null;
  }
}
