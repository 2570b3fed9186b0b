package io.nccl4j.conformance;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Event;
import io.nccl4j.Group;
import io.nccl4j.InterruptedWaitException;
import io.nccl4j.NcclException;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.WarmUp;
import java.time.Duration;
import java.util.Arrays;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.RepeatedTest;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** An interrupt ends every wait, soon, and leaves what the wait's call says. */
@Timeout(value = 60, threadMode = ThreadMode.SEPARATE_THREAD)
class InterruptTest {
  /**
   * Far below every deadline of {@link TestBackend#CONFIG}, and above what a busy machine needs to
   * let a thread run.
   */
  private static final long SOON_NANOS = 2_000_000_000;

  private static final CommunicatorConfig SMALL_FIFO =
      CommunicatorConfig.builder()
          .initTimeout(Duration.ofSeconds(30))
          .operationTimeout(Duration.ofSeconds(20))
          .closeTimeout(Duration.ofSeconds(5))
          .fifoBytes(4096)
          .build();

  /** What a thread does that is interrupted. */
  private interface Call {
    void run() throws Exception;
  }

  /** A call on a thread of its own. */
  private static final class Caller {
    private final CountDownLatch begun = new CountDownLatch(1);
    private final Thread thread;
    private volatile Throwable thrown;
    private volatile boolean flag;
    private volatile long ended;

    Caller(boolean virtual, Call call) {
      Runnable run =
          () -> {
            begun.countDown();
            try {
              call.run();
            } catch (Throwable e) {
              thrown = e;
            }
            ended = System.nanoTime();
            flag = Thread.currentThread().isInterrupted();
          };
      thread = virtual ? Thread.ofVirtual().start(run) : Thread.ofPlatform().daemon().start(run);
    }

    /** Interrupts it after a while; how long it took to end, in ns. */
    long interruptAfter(long millis) throws InterruptedException {
      begun.await();
      Thread.sleep(millis);
      long start = System.nanoTime();
      thread.interrupt();
      assertTrue(thread.join(Duration.ofSeconds(30)), "the interrupt ended nothing");
      assertTrue(flag, "the flag was cleared");
      return ended - start;
    }

    void assertInterruptedSoon() throws InterruptedException {
      assertInterruptedSoon(20);
    }

    /** What it counts grows until it waits. */
    void assertInterruptedSoon(AtomicInteger count) throws InterruptedException {
      int before;
      do {
        before = count.get();
        Thread.sleep(100);
      } while (before == 0 || before != count.get());
      assertInterruptedSoon(0);
    }

    private void assertInterruptedSoon(long millis) throws InterruptedException {
      long nanos = interruptAfter(millis);
      assertInstanceOf(InterruptedWaitException.class, thrown, () -> String.valueOf(thrown));
      assertTrue(nanos < SOON_NANOS, () -> "it took " + nanos / 1_000_000 + " ms");
    }
  }

  private static void hold(Ranks ranks) {
    ranks.get(0).barrier(ranks.streams.get(0));
  }

  private static void letGo(Ranks ranks) {
    ranks.get(1).barrier(ranks.streams.get(1));
  }

  private static Call waitFor(String what, Ranks ranks, Event event) {
    Stream stream = ranks.streams.get(0);
    return switch (what) {
      case "stream" -> stream::synchronize;
      case "timed" -> () -> stream.synchronize(Duration.ofSeconds(Long.MAX_VALUE));
      default -> event::synchronize;
    };
  }

  @ParameterizedTest
  @CsvSource({
    "stream, false",
    "stream, true",
    "timed, false",
    "timed, true",
    "event, false",
    "event, true"
  })
  void aWaitEndsAndTheWorkGoesOn(String what, boolean virtual) throws Exception {
    try (Ranks ranks = new Ranks(2);
        Event event = ranks.get(0).device().newEvent()) {
      hold(ranks);
      ranks.streams.get(0).record(event);
      for (int i = 0; i < 3; i++) {
        new Caller(virtual, waitFor(what, ranks, event)).assertInterruptedSoon();
        assertEquals(Communicator.State.READY, ranks.get(0).state());
      }
      letGo(ranks);
      ranks.synchronize();
      ranks.assertUsable();
    }
  }

  @Test
  @Tag("long")
  @Timeout(value = 5, unit = TimeUnit.MINUTES, threadMode = ThreadMode.SEPARATE_THREAD)
  void aWaitEndsWithin10Milliseconds() throws Exception {
    CommunicatorConfig config =
        CommunicatorConfig.builder()
            .operationTimeout(CommunicatorConfig.OFF)
            .closeTimeout(Duration.ofSeconds(5))
            .build();
    for (String what : new String[] {"stream", "timed", "event"}) {
      for (boolean virtual : new boolean[] {false, true}) {
        long[] nanos = new long[300];
        try (Ranks ranks = new Ranks(2, config);
            Event event = ranks.get(0).device().newEvent()) {
          hold(ranks);
          ranks.streams.get(0).record(event);
          for (int i = 0; i < nanos.length; i++) {
            nanos[i] = new Caller(virtual, waitFor(what, ranks, event)).interruptAfter(i % 20);
          }
          letGo(ranks);
          ranks.synchronize();
        }
        Arrays.sort(nanos);
        long p99 = nanos[nanos.length * 99 / 100];
        System.out.printf(
            "%s, %s: interrupted within %.2f ms (p50), %.2f ms (p99)%n",
            what, virtual ? "virtual" : "platform", nanos[nanos.length / 2] / 1e6, p99 / 1e6);
        assertTrue(p99 <= 10_000_000, () -> what + ": p99 is " + p99 / 1e6 + " ms");
      }
    }
  }

  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void aFullFifo(boolean virtual) throws Exception {
    try (Ranks ranks = new Ranks(2, SMALL_FIFO)) {
      AtomicInteger queued = new AtomicInteger();
      new Caller(
              virtual,
              () -> {
                while (true) {
                  hold(ranks);
                  queued.incrementAndGet();
                }
              })
          .assertInterruptedSoon(queued);
      assertTrue(queued.get() > 0);
      assertEquals(Communicator.State.READY, ranks.get(0).state());
      // The call that was interrupted queued nothing: the ranks are in step.
      for (int i = 0; i < queued.get(); i++) {
        letGo(ranks);
      }
      ranks.synchronize();
      assertEquals(ranks.get(1).counters().collectives(), ranks.get(0).counters().collectives());
      ranks.assertUsable();
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"fill", "group"})
  void aFullStream(String what) throws Exception {
    try (Ranks ranks = new Ranks(2);
        DeviceBuffer buffer = ranks.get(0).device().allocate(16)) {
      Stream stream = ranks.streams.get(0);
      hold(ranks);
      AtomicInteger queued = new AtomicInteger();
      new Caller(
              false,
              () -> {
                while (true) {
                  if (what.equals("fill")) {
                    stream.fill(buffer, (byte) 1);
                  } else {
                    Group.run(() -> hold(ranks));
                  }
                  queued.incrementAndGet();
                }
              })
          .assertInterruptedSoon(queued);
      assertEquals(Communicator.State.READY, ranks.get(0).state());
      letGo(ranks);
      for (int i = 0; i < queued.get() && what.equals("group"); i++) {
        letGo(ranks);
      }
      ranks.synchronize();
      ranks.assertUsable();
    }
  }

  @Test
  void aFutureThatIsCancelled() throws Exception {
    try (Ranks ranks = new Ranks(2);
        ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor()) {
      hold(ranks);
      CountDownLatch ended = new CountDownLatch(1);
      Future<?> waiting =
          threads.submit(
              () -> {
                try {
                  ranks.streams.get(0).synchronize();
                } finally {
                  ended.countDown();
                }
              });
      Thread.sleep(20);
      waiting.cancel(true);
      assertTrue(ended.await(2, TimeUnit.SECONDS), "it waits on");
      letGo(ranks);
      ranks.synchronize();
      ranks.assertUsable();
    }
  }

  /** Neither skipped nor waiting: what would have to be waited for is given up. */
  @Test
  void closeOnAnInterruptedThread() throws Exception {
    try (Ranks ranks = new Ranks(2)) {
      hold(ranks);
      Communicator closing = ranks.get(0);
      Thread.currentThread().interrupt();
      long start = System.nanoTime();
      closing.close();
      long nanos = System.nanoTime() - start;
      assertTrue(Thread.interrupted(), "the flag was cleared");
      assertTrue(nanos < SOON_NANOS, () -> "close took " + nanos / 1_000_000 + " ms");
      assertEquals(Communicator.State.CLOSED, closing.state());
      assertThrows(
          NcclException.class,
          () -> {
            letGo(ranks);
            ranks.streams.get(1).synchronize();
          });
    }
  }

  @Test
  void anInterruptWhileClosing() throws Exception {
    try (Ranks ranks = new Ranks(2)) {
      hold(ranks);
      Communicator closing = ranks.get(0);
      Caller caller = new Caller(false, closing::close);
      long nanos = caller.interruptAfter(20);
      assertEquals(null, caller.thrown);
      assertTrue(nanos < SOON_NANOS, () -> "close took " + nanos / 1_000_000 + " ms");
      assertEquals(Communicator.State.CLOSED, closing.state());
    }
  }

  @RepeatedTest(10) // the call may or may not have ended when its communicator is closed
  void aCallOfAllRanksFailsThemAll() throws Exception {
    try (Ranks ranks = new Ranks(2)) {
      new Caller(false, () -> ranks.get(0).split(0, 0)).assertInterruptedSoon();
      assertThrows(NcclException.class, () -> ranks.get(1).split(0, 1));
      assertThrows(NcclException.class, () -> hold(ranks));
    }
    try (Ranks ranks = new Ranks(2)) {
      WarmUp plan = WarmUp.builder().iterations(100).build();
      new Caller(false, () -> ranks.get(0).warmUp(plan)).assertInterruptedSoon();
      assertThrows(NcclException.class, () -> ranks.get(1).warmUp(plan));
    }
  }

  @Test
  void ranksThatRun() throws Exception {
    try (Ranks ranks = new Ranks(2)) {
      CountDownLatch over = new CountDownLatch(2);
      new Caller(
              false,
              () ->
                  ranks.communicators.run(
                      communicator -> {
                        try {
                          if (communicator.rank() == 0) {
                            hold(ranks);
                            ranks.streams.get(0).synchronize();
                          } else {
                            Thread.sleep(60_000);
                          }
                        } finally {
                          over.countDown();
                        }
                      }))
          .assertInterruptedSoon();
      assertTrue(over.await(5, TimeUnit.SECONDS), "a rank runs on");
      assertEquals(Communicator.State.ABORTED, ranks.get(0).state());
    }
  }

  @Test
  void joining() throws Exception {
    UniqueId id = UniqueId.create(TestBackend.BACKEND);
    CompletableFuture<Communicator> other =
        Communicator.initRankAsync(TestBackend.device(1), 3, id, 1, TestBackend.CONFIG);
    new Caller(
            false, () -> Communicator.initRank(TestBackend.device(0), 3, id, 0, TestBackend.CONFIG))
        .assertInterruptedSoon();
    assertFails(other);
  }

  @Test
  void aCancelledJoinIsGivenUp() throws Exception {
    UniqueId id = UniqueId.create(TestBackend.BACKEND);
    CompletableFuture<Communicator> cancelled =
        Communicator.initRankAsync(TestBackend.device(0), 3, id, 0, TestBackend.CONFIG);
    CompletableFuture<Communicator> other =
        Communicator.initRankAsync(TestBackend.device(1), 3, id, 1, TestBackend.CONFIG);
    Thread.sleep(50);
    cancelled.cancel(true);
    assertFails(other);
    assertTrue(
        TestBackend.eventually(
            () ->
                Thread.getAllStackTraces().keySet().stream()
                    .noneMatch(thread -> thread.getName().startsWith("nccl4j-init-"))),
        "a thread joins on");
  }

  private static void assertFails(CompletableFuture<Communicator> join) {
    ExecutionException e =
        assertThrows(ExecutionException.class, () -> join.get(10, TimeUnit.SECONDS));
    assertInstanceOf(NcclException.class, e.getCause());
  }
}
