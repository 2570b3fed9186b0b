package io.nccl4j.cuda;

import io.nccl4j.AbortedException;
import io.nccl4j.NcclException;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Supplier;
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

  private static final Duration STEP = Duration.ofMillis(10);
  private static final Duration LETTING_GO = Duration.ofSeconds(2);

  private Patiently() {}

  /**
   * {@link #run(String, Call, Duration, Runnable, Supplier, Supplier)} with nothing to end it
   * early.
   */
  static void run(
      String name, Call call, Duration timeout, Runnable giveUp, Supplier<NcclException> late) {
    run(name, call, timeout, giveUp, () -> null, late);
  }

  /**
   * Returns when the call has.
   *
   * @param name of the thread
   * @param giveUp makes NCCL let the call go; called when the caller waits no longer
   * @param early asked again and again: why there is nothing to wait for any more; null otherwise
   * @param late what to throw at the deadline
   * @throws NcclException what the call throws, or {@code early} or {@code late} returns
   */
  static void run(
      String name,
      Call call,
      Duration timeout,
      Runnable giveUp,
      Supplier<@Nullable NcclException> early,
      Supplier<NcclException> late) {
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
    try {
      NcclException e = await(thread, timeout, early, late);
      if (e != null) {
        giveUp.run();
        // What NCCL writes to stays with the thread, should that not be enough.
        thread.join(LETTING_GO);
        throw e;
      }
    } catch (InterruptedException e) {
      giveUp.run();
      Thread.currentThread().interrupt();
      throw new AbortedException("the wait for other ranks was interrupted", "").causedBy(e);
    }
    switch (thrown.get()) {
      case null -> {}
      case NcclException e -> throw e;
      case RuntimeException e -> throw e;
      case Throwable e -> throw new AssertionError("a call of NCCL failed", e);
    }
  }

  private static @Nullable NcclException await(
      Thread thread,
      Duration timeout,
      Supplier<@Nullable NcclException> early,
      Supplier<NcclException> late)
      throws InterruptedException {
    long start = System.nanoTime();
    while (!thread.join(STEP)) {
      NcclException e = early.get();
      if (e != null) {
        return e;
      }
      if (System.nanoTime() - start > timeout.toNanos()) {
        return late.get();
      }
    }
    return null;
  }
}
