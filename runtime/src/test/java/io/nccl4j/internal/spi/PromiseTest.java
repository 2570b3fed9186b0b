package io.nccl4j.internal.spi;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.DeadlineException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Futures whose completion is tried until it succeeds, never on the thread that asks for it. */
@Timeout(60)
class PromiseTest {
  /** Refuses some times, as a pool does that cannot have a thread or memory. */
  private static final class Refusing extends Promise {
    final AtomicInteger refusals;

    Refusing(int refusals) {
      this.refusals = new AtomicInteger(refusals);
    }

    @Override
    Executor pool() {
      if (refusals.getAndDecrement() > 0) {
        throw new OutOfMemoryError("for the test");
      }
      return ForkJoinPool.commonPool();
    }
  }

  private static void deliverUntilDone(CompletableFuture<?> future) {
    while (!future.isDone()) {
      try {
        Promise.deliverAll();
      } catch (OutOfMemoryError e) {
        assertEquals("for the test", e.getMessage());
      }
      Thread.onSpinWait();
    }
  }

  @Test
  void whatHangsOnItRunsElsewhere() throws Exception {
    Promise promise = new Promise();
    CompletableFuture<Thread> ran = promise.future().thenApply(none -> Thread.currentThread());
    promise.settle(null);
    assertFalse(Thread.currentThread() == ran.get(30, TimeUnit.SECONDS));
  }

  @Test
  void itIsTriedUntilItSucceeds() throws Exception {
    Refusing promise = new Refusing(4);
    Refusing failing = new Refusing(2);
    DeadlineException why = new DeadlineException("for the test", "");
    promise.settle(null);
    failing.settle(why);
    deliverUntilDone(promise.future());
    deliverUntilDone(failing.future());
    promise.future().get();
    ExecutionException e = assertThrows(ExecutionException.class, failing.future()::get);
    assertEquals(why.getMessage(), e.getCause().getMessage());
    assertSame(why, e.getCause().getCause());
    assertTrue(promise.refusals.get() <= 0);
  }

  /** The pool lost it: its thread died of the same lack of memory. */
  @Test
  void itIsHandedOverAgain() throws Exception {
    AtomicInteger lost = new AtomicInteger(2);
    Promise promise =
        new Promise() {
          @Override
          Executor pool() {
            return lost.getAndDecrement() > 0 ? task -> {} : ForkJoinPool.commonPool();
          }
        };
    promise.settle(null);
    deliverUntilDone(promise.future());
    promise.future().get();
  }
}
