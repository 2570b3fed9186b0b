package io.nccl4j.internal.spi;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Queue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Threads that nothing ends. */
@Timeout(60)
@Tag("parallel")
class HelperThreadTest {
  @Test
  void aRoundThatThrowsIsDoneAgain() throws Exception {
    Queue<Throwable> troubles = new ConcurrentLinkedQueue<>();
    troubles.add(new IllegalStateException("for the test"));
    troubles.add(new OutOfMemoryError("for the test"));
    troubles.add(new StackOverflowError("for the test"));
    troubles.add(new NoClassDefFoundError("for the test"));
    CountDownLatch through = new CountDownLatch(1);
    BlockingQueue<Throwable> lost = new LinkedBlockingQueue<>();
    HelperThread helper =
        new HelperThread(
            "test-helper",
            () -> {
              HelperThread.rethrow(troubles.poll());
              through.countDown();
              return false;
            },
            lost::add);
    assertFalse(helper.isStarted());
    helper.start();
    assertTrue(helper.isStarted());
    assertTrue(through.await(30, TimeUnit.SECONDS));
    assertEquals(0, troubles.size());
    assertNull(lost.poll(100, TimeUnit.MILLISECONDS));
  }

  /** Whoever relies on a helper that gets nothing done is told, once; and it still tries. */
  @Test
  void whatGetsNothingDoneSaysSo() throws Exception {
    NoClassDefFoundError trouble = new NoClassDefFoundError("for the test");
    AtomicInteger rounds = new AtomicInteger();
    CountDownLatch more = new CountDownLatch(HelperThread.HOPELESS + 20);
    BlockingQueue<Throwable> told = new LinkedBlockingQueue<>();
    HelperThread helper =
        new HelperThread(
            "test-helper",
            () -> {
              rounds.incrementAndGet();
              more.countDown();
              if (more.getCount() == 0) {
                return false;
              }
              throw trouble;
            },
            e -> {
              if (rounds.get() == HelperThread.HOPELESS) {
                // Telling is tried again, too.
                throw new OutOfMemoryError("for the test");
              }
              told.add(e);
            });
    helper.start();
    assertSame(trouble, told.poll(30, TimeUnit.SECONDS));
    assertTrue(rounds.get() >= HelperThread.HOPELESS, rounds::toString);
    assertTrue(more.await(30, TimeUnit.SECONDS));
    assertNull(told.poll(100, TimeUnit.MILLISECONDS));
  }

  /** A lack of memory is not for ever. */
  @Test
  void aLackOfMemoryIsWaitedOut() throws Exception {
    CountDownLatch more = new CountDownLatch(2 * HelperThread.HOPELESS);
    BlockingQueue<Throwable> told = new LinkedBlockingQueue<>();
    HelperThread helper =
        new HelperThread(
            "test-helper",
            () -> {
              more.countDown();
              if (more.getCount() == 0) {
                return false;
              }
              throw new OutOfMemoryError("for the test");
            },
            told::add);
    helper.start();
    assertTrue(more.await(50, TimeUnit.SECONDS));
    assertNull(told.poll());
  }

  @Test
  void anInterruptIsInVain() throws Exception {
    AtomicInteger rounds = new AtomicInteger();
    CountDownLatch end = new CountDownLatch(1);
    CountDownLatch ended = new CountDownLatch(1);
    HelperThread helper =
        new HelperThread(
            "test-helper",
            () -> {
              if (rounds.incrementAndGet() == 1) {
                Thread.currentThread().interrupt();
              }
              LockSupport.parkNanos(5_000_000);
              if (end.getCount() == 0) {
                ended.countDown();
                return false;
              }
              return true;
            },
            e -> {});
    helper.start();
    Thread.sleep(300);
    int most = rounds.get();
    assertTrue(most < 100, () -> most + " rounds of 5 ms in 300 ms");
    end.countDown();
    assertTrue(ended.await(10, TimeUnit.SECONDS));
  }
}
