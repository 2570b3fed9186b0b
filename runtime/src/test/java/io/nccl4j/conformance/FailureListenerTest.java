package io.nccl4j.conformance;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.AbortedException;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.DeadlineException;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.MismatchException;
import io.nccl4j.NcclException;
import io.nccl4j.PeerFailedException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.time.Duration;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;

/** Who wants to hear of failures hears of each, once, and of nothing else. */
@Timeout(value = 120, threadMode = ThreadMode.SEPARATE_THREAD)
class FailureListenerTest {
  private record Heard(Communicator communicator, NcclException failure, Thread thread) {}

  private final Queue<Heard> heard = new ConcurrentLinkedQueue<>();

  private CommunicatorConfig.Builder config() {
    return TestBackend.CONFIG.toBuilder()
        .onFailure(
            (communicator, failure) ->
                heard.add(new Heard(communicator, failure, Thread.currentThread())));
  }

  private List<Heard> of(Communicator communicator) {
    return heard.stream().filter(one -> one.communicator == communicator).toList();
  }

  /** Each rank is told once, soon, of the same failure that its calls throw. */
  private void assertHeard(Ranks ranks, Class<? extends NcclException> type) {
    for (int rank = 0; rank < ranks.size(); rank++) {
      Communicator communicator = ranks.get(rank);
      assertTrue(
          TestBackend.eventually(() -> !of(communicator).isEmpty()), "nobody told of rank " + rank);
      NcclException told = of(communicator).getFirst().failure;
      assertInstanceOf(type, told);
      NcclException first = communicator.failure().orElseThrow();
      assertEquals(first.problem(), told.problem());
      assertNotSame(first, told);
    }
    assertEquals(ranks.size(), heard.size());
  }

  @Test
  void aDeadline() {
    CommunicatorConfig config = config().operationTimeout(Duration.ofMillis(300)).build();
    try (Ranks ranks = new Ranks(2, config)) {
      ranks.sum(0, 1);
      assertThrows(DeadlineException.class, ranks.streams.get(0)::synchronize);
      assertHeard(ranks, NcclException.class);
      assertInstanceOf(DeadlineException.class, of(ranks.get(0)).getFirst().failure);
    }
    assertEquals(2, heard.size());
  }

  @Test
  void aContradiction() throws Exception {
    try (Ranks ranks = new Ranks(2, config().build())) {
      ranks.outcomes(
          communicator -> {
            int rank = communicator.rank();
            ranks.sum(rank, 1 + rank);
            ranks.streams.get(rank).synchronize();
          });
      assertHeard(ranks, MismatchException.class);
    }
    assertEquals(2, heard.size());
  }

  /** Nobody is in a call of the other rank, which has no streams either. */
  @Test
  void anAbortByAnotherRankIsNoticedByIdleRanks() {
    try (Ranks ranks = new Ranks(2, config().build())) {
      ranks.streams.forEach(Stream::close);
      ranks.get(1).abort(new IllegalStateException("the disk is full"));
      assertHeard(ranks, AbortedException.class);
      assertTrue(of(ranks.get(0)).getFirst().failure.getMessage().contains("the disk is full"));
      assertEquals(List.of(1), of(ranks.get(0)).getFirst().failure.failedRanks());
      ranks.get(0).abort();
    }
    assertEquals(2, heard.size());
  }

  @Test
  void aRankThatLeavesWhileAnotherWaits() {
    try (Ranks ranks = new Ranks(2, config().build())) {
      TestBackend.requireHost("NCCL waits for a rank that has left");
      ranks.sum(0, 1);
      ranks.get(1).close();
      assertThrows(PeerFailedException.class, ranks.streams.get(0)::synchronize);
      assertTrue(TestBackend.eventually(() -> !of(ranks.get(0)).isEmpty()));
      assertInstanceOf(PeerFailedException.class, of(ranks.get(0)).getFirst().failure);
    }
    assertEquals(1, heard.size());
  }

  @Test
  void aCloseThatGivesUpUnfinishedWork() {
    CommunicatorConfig config = config().closeTimeout(Duration.ofMillis(100)).build();
    try (Ranks ranks = new Ranks(2, config)) {
      ranks.sum(0, 1);
      ranks.get(0).close();
      assertTrue(TestBackend.eventually(() -> !of(ranks.get(0)).isEmpty()));
      assertInstanceOf(AbortedException.class, of(ranks.get(0)).getFirst().failure);
    }
  }

  @Test
  void nobodyIsToldOfAnOrdinaryEnd() throws Exception {
    CountDownLatch told = new CountDownLatch(1);
    CommunicatorConfig config =
        TestBackend.CONFIG.toBuilder().onFailure((c, e) -> told.countDown()).build();
    try (Ranks ranks = new Ranks(2, config)) {
      ranks.assertUsable();
    }
    // What would be told is told on the same pool, and earlier.
    ForkJoinPool.commonPool().submit(() -> {}).get();
    assertFalse(told.await(100, TimeUnit.MILLISECONDS));
  }

  @Test
  void nobodyIsToldOfACommunicatorThatIsNotCreated() {
    CommunicatorConfig config = config().memoryBudget(1).build();
    assertThrows(
        NcclException.class, () -> Communicator.initAll(List.of(TestBackend.device(0)), config));
    assertNull(heard.peek());
  }

  @Test
  void itRunsOnAThreadOfThePoolAndHoldsNoLock() throws Exception {
    CountDownLatch closed = new CountDownLatch(1);
    Throwable[] thrown = new Throwable[1];
    Thread[] thread = new Thread[1];
    CommunicatorConfig config =
        TestBackend.CONFIG.toBuilder()
            .onFailure(
                (communicator, failure) -> {
                  thread[0] = Thread.currentThread();
                  try {
                    // Another thread needs all locks that there are.
                    Thread other = Thread.ofPlatform().start(communicator::close);
                    other.join(TimeUnit.SECONDS.toMillis(10));
                    assertFalse(other.isAlive());
                    assertSame(Communicator.State.CLOSED, communicator.state());
                  } catch (Throwable e) {
                    thrown[0] = e;
                  } finally {
                    closed.countDown();
                  }
                })
            .build();
    try (Ranks ranks = new Ranks(1, config)) {
      ranks.get(0).abort();
      assertTrue(closed.await(20, TimeUnit.SECONDS));
      assertNull(thrown[0]);
      assertNotNull(thread[0]);
      assertNotSame(Thread.currentThread(), thread[0]);
      assertFalse(thread[0].getName().startsWith("nccl4j-"), thread[0]::toString);
    }
  }

  @Test
  void whatItThrowsHurtsNobody() {
    int[] calls = new int[1];
    CommunicatorConfig config =
        TestBackend.CONFIG.toBuilder()
            .onFailure(
                (communicator, failure) -> {
                  synchronized (calls) {
                    calls[0]++;
                  }
                  throw new IllegalStateException("of the listener");
                })
            .build();
    try (Ranks ranks = new Ranks(2, config)) {
      ranks.get(0).abort();
      assertTrue(
          TestBackend.eventually(
              () -> {
                synchronized (calls) {
                  return calls[0] == 2;
                }
              }));
    }
    try (Ranks ranks = new Ranks(2)) {
      ranks.assertUsable();
    }
  }

  @Test
  void childrenInheritIt() {
    try (Ranks ranks = new Ranks(1, config().build());
        Communicator child = ranks.get(0).split(0, 0)) {
      assertNotNull(child);
      child.abort();
      assertTrue(TestBackend.eventually(() -> of(child).size() == 1));
      assertEquals(List.of(), of(ranks.get(0)));
      ranks
          .get(0)
          .allReduce(
              ranks.in.get(0),
              ranks.out.get(0),
              1,
              DataType.INT32,
              ReduceOp.SUM,
              ranks.streams.get(0));
      ranks.synchronize();
    }
    assertEquals(1, heard.size());
  }

  @Test
  void thereIsOne() {
    assertThrows(
        InvalidArgumentException.class, () -> CommunicatorConfig.builder().onFailure(null));
  }
}
