package io.nccl4j.conformance;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.AbortedException;
import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Communicators;
import io.nccl4j.DataType;
import io.nccl4j.DeadlineException;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Event;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.PeerFailedException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CyclicBarrier;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;
import org.junit.jupiter.api.function.Executable;

/** Who is told what of a failure: the rank where it began, its text, and by which exception. */
@Timeout(value = 120, threadMode = ThreadMode.SEPARATE_THREAD)
class FailureTest {
  private static final String BOOM = "the disk of this rank is full";
  private static final long MAX_SECONDS = 10;

  private static CommunicatorConfig deadline(long millis) {
    return CommunicatorConfig.builder()
        // Up to 64 ranks share a few processors with the tests of another module.
        .initTimeout(Duration.ofSeconds(120))
        .operationTimeout(Duration.ofMillis(millis))
        .closeTimeout(Duration.ofSeconds(5))
        .build();
  }

  private static void sum(Communicator communicator, Runnable before) {
    try (Stream stream = communicator.device().newStream();
        DeviceBuffer buffer = communicator.device().allocate(8)) {
      before.run();
      communicator.allReduce(buffer, buffer, 1, DataType.INT32, ReduceOp.SUM, stream);
      stream.synchronize();
    }
  }

  private static void sum(Communicator communicator) {
    sum(communicator, () -> {});
  }

  private static NcclException thrownBy(Executable call) {
    NcclException e = assertThrows(NcclException.class, call);
    assertTrue(
        Arrays.stream(e.getStackTrace())
            .anyMatch(frame -> frame.getClassName().startsWith(FailureTest.class.getName())),
        "the stack is not the caller's");
    return e;
  }

  // ---- the exception

  /** A failure that is met between two calls has its own type, too, as at any other place. */
  @Test
  void everyCallThrowsTheFailureAsAnExceptionOfItsOwn() {
    try (Ranks ranks = new Ranks(2);
        Stream idle = ranks.get(0).device().newStream();
        Event event = ranks.get(0).device().newEvent()) {
      ranks.assertUsable();
      ranks.sum(0, 1);
      ranks.streams.get(0).record(event);
      ranks.get(1).abort();
      List<NcclException> thrown = new ArrayList<>();
      for (int i = 0; i < 2; i++) {
        thrown.add(thrownBy(ranks.streams.get(0)::synchronize));
        thrown.add(thrownBy(event::synchronize));
        thrown.add(thrownBy(() -> ranks.sum(0, 1, idle)));
        thrown.add(thrownBy(() -> ranks.get(0).barrier(idle)));
        thrown.add(thrownBy(() -> ranks.get(0).split(0, 0)));
        CompletionException future =
            assertThrows(CompletionException.class, () -> event.toFuture().join());
        thrown.add(assertInstanceOf(NcclException.class, future.getCause()));
      }
      NcclException first = ranks.get(0).failure().orElseThrow();
      for (NcclException e : thrown) {
        assertInstanceOf(AbortedException.class, e, e::toString);
        assertSame(first, e.getCause(), e::toString);
        assertEquals(List.of(1), e.failedRanks(), e::toString);
        thrown.forEach(other -> assertTrue(e == other || e.getCause() != other));
      }
      assertEquals(thrown.size(), thrown.stream().distinct().count(), "some are the same object");
    }
  }

  @Test
  void allThreadsThatWaitForAFutureGetTheirOwn() {
    try (Ranks ranks = new Ranks(2);
        Event event = ranks.get(0).device().newEvent()) {
      ranks.assertUsable();
      ranks.sum(0, 1);
      ranks.streams.get(0).record(event);
      var one = event.toFuture();
      var other = event.toFuture();
      ranks.get(1).abort();
      Throwable first = assertThrows(CompletionException.class, one::join).getCause();
      Throwable second = assertThrows(CompletionException.class, other::join).getCause();
      assertInstanceOf(AbortedException.class, first);
      assertInstanceOf(AbortedException.class, second);
      assertNotSame(first, second);
    }
  }

  // ---- who is to blame

  private static void assertBlamed(Throwable thrown, int rank, List<Integer> culprits) {
    NcclException e =
        assertInstanceOf(NcclException.class, thrown, () -> "rank " + rank + " got " + thrown);
    assertEquals(culprits, e.failedRanks(), () -> "rank " + rank + " got " + e);
    if (e instanceof PeerFailedException peer) {
      assertEquals(culprits.getFirst(), peer.rank(), e::toString);
    }
  }

  private static void missing(int nranks, List<Integer> absent) throws Exception {
    try (Communicators ranks = TestBackend.communicators(nranks, deadline(1500))) {
      Throwable[] thrown = new Throwable[nranks];
      List<Thread> threads = new ArrayList<>();
      CyclicBarrier ready = new CyclicBarrier(nranks - absent.size());
      for (Communicator rank : ranks) {
        if (!absent.contains(rank.rank())) {
          threads.add(
              Thread.ofPlatform()
                  .start(
                      () -> {
                        try {
                          sum(rank, () -> Waits.await(ready));
                        } catch (Throwable e) {
                          thrown[rank.rank()] = e;
                        }
                      }));
        }
      }
      for (Thread thread : threads) {
        thread.join();
      }
      int told = 0;
      for (int rank = 0; rank < nranks; rank++) {
        if (!absent.contains(rank)) {
          assertBlamed(thrown[rank], rank, absent);
          assertTrue(
              String.valueOf(thrown[rank].getMessage()).contains("allReduce(1 int32, sum) #"),
              thrown[rank]::toString);
          told += thrown[rank] instanceof PeerFailedException ? 1 : 0;
          assertTrue(
              thrown[rank] instanceof PeerFailedException
                  || thrown[rank] instanceof DeadlineException,
              thrown[rank]::toString);
        }
      }
      System.out.println(told + " of " + nranks + " ranks were told by another one");
      ranks.forEach(Communicator::close);
    }
  }

  /** Elsewhere it works, see SurvivorsTest. */
  @Test
  void ranksOnSeveralHostsHaveNoSurvivors() {
    TestBackend.requireHost("the cuda backend has none at all");
    try (Ranks ranks = new Ranks(4)) {
      Communicator comm = ranks.get(0);
      comm.abort();
      if (comm.hosts().orElseThrow().count() > 1) {
        InvalidUsageException e =
            assertThrows(InvalidUsageException.class, () -> comm.survivors(Duration.ZERO));
        assertTrue(e.getMessage().contains("several hosts"), e::getMessage);
      } else {
        comm.survivors(Duration.ZERO).close();
      }
    }
  }

  /** A rank that does not come is named by all, and not the one whose deadline passed first. */
  @Test
  void theRankThatIsMissingIsNamedByAll() throws Exception {
    int nranks = TestBackend.BACKEND == Backend.HOST ? 64 : 8;
    missing(nranks, List.of(7));
  }

  @Test
  void allThatAreMissingAreNamed() throws Exception {
    missing(5, List.of(1, 3));
  }

  /** What a rank threw is known to all others, by its rank, its text and as their cause. */
  @Test
  void aTaskThatThrowsIsNamedByAll() throws Exception {
    TestBackend.requireOneHost("an exception of another host is known by its text");
    int nranks = TestBackend.BACKEND == Backend.HOST ? 61 : 8;
    try (Communicators ranks = TestBackend.communicators(nranks)) {
      IllegalStateException boom = new IllegalStateException(BOOM);
      CyclicBarrier ready = new CyclicBarrier(nranks);
      IllegalStateException thrown =
          assertThrows(
              IllegalStateException.class,
              () ->
                  ranks.run(
                      rank -> {
                        Waits.await(ready);
                        if (rank.rank() == 1) {
                          throw boom;
                        }
                        sum(rank);
                      }));
      assertSame(boom, thrown);
      assertEquals(nranks - 1, boom.getSuppressed().length);
      for (Throwable other : boom.getSuppressed()) {
        assertInstanceOf(AbortedException.class, other);
        assertBlamed(other, -1, List.of(1));
        assertTrue(String.valueOf(other.getMessage()).contains(BOOM), other::toString);
        assertTrue(causes(other).contains(boom), other::toString);
      }
    }
  }

  @Test
  void itIsKnownAlsoWhenTheRankHasClosedItsCommunicator() throws Exception {
    try (Communicators ranks = TestBackend.communicators(2)) {
      IllegalStateException boom = new IllegalStateException(BOOM);
      assertThrows(
          IllegalStateException.class,
          () ->
              ranks.run(
                  rank -> {
                    if (rank.rank() == 1) {
                      rank.close();
                      throw boom;
                    }
                    while (rank.state() == Communicator.State.READY) {
                      Thread.sleep(1);
                    }
                  }));
      NcclException told = ranks.get(0).failure().orElseThrow();
      assertEquals(List.of(1), told.failedRanks(), told::toString);
      assertTrue(causes(told).contains(boom), told::toString);
    }
  }

  @Test
  void theReasonOfAnAbortIsTold() {
    try (Ranks ranks = new Ranks(3)) {
      ranks.assertUsable();
      ranks.get(2).abort(new IllegalStateException(BOOM));
      for (int rank = 0; rank < 3; rank++) {
        Communicator communicator = ranks.get(rank);
        TestBackend.awaitOtherHosts(() -> communicator.state() == Communicator.State.ABORTED);
        assertEquals(Communicator.State.ABORTED, communicator.state());
        NcclException e = ranks.get(rank).failure().orElseThrow();
        assertEquals(List.of(2), e.failedRanks());
        assertTrue(e.getMessage().contains(BOOM), e::getMessage);
      }
    }
  }

  private static List<Throwable> causes(Throwable e) {
    List<Throwable> causes = new ArrayList<>();
    for (Throwable cause = e.getCause(); cause != null; cause = cause.getCause()) {
      causes.add(cause);
    }
    return causes;
  }

  // ---- tasks that end

  private static void endsEarly(Communicators.RankTask waiting, String operation) {
    TestBackend.requireOneHost("whether a task of another process has ended is not known");
    try (Communicators ranks = TestBackend.communicators(4)) {
      long start = System.nanoTime();
      PeerFailedException thrown =
          assertThrows(
              PeerFailedException.class,
              () ->
                  ranks.run(
                      rank -> {
                        sum(rank);
                        if (rank.rank() != 3) {
                          waiting.run(rank);
                        }
                      }));
      double seconds = (System.nanoTime() - start) / 1e9;
      List<Throwable> all = new ArrayList<>(List.of(thrown.getSuppressed()));
      all.add(thrown);
      for (Throwable e : all) {
        assertBlamed(e, -1, List.of(3));
        assertTrue(e.getMessage().contains("rank 3's task ended (normally) while"), e::toString);
        assertTrue(e.getMessage().contains(operation), e::toString);
      }
      assertTrue(seconds < MAX_SECONDS, seconds + " s");
    }
  }

  @Test
  void aTaskThatEndsBeforeTheOthersIsNamedAtOnce() {
    endsEarly(FailureTest::sum, "allReduce(1 int32, sum) #");
  }

  @Test
  void aTaskThatEndsBeforeItSendsIsNamedAtOnce() {
    endsEarly(
        rank -> {
          try (Stream stream = rank.device().newStream();
              DeviceBuffer buffer = rank.device().allocate(8)) {
            rank.recv(buffer, 1, DataType.INT32, 3, stream);
            stream.synchronize();
          }
        },
        "recv");
  }

  /** What it has issued before is still waited for; and later everybody may go on. */
  @Test
  void aTaskMayEndBeforeItsOperationsAreComplete() throws Exception {
    try (Ranks ranks = new Ranks(2)) {
      ranks.communicators.run(
          rank -> {
            if (rank.rank() == 0) {
              ranks.sum(0, 1);
            } else {
              Thread.sleep(50);
              ranks.sum(1, 1);
              ranks.streams.get(1).synchronize();
            }
          });
      ranks.streams.get(0).synchronize();
      ranks.communicators.run(
          rank -> {
            if (rank.rank() == 0) {
              Thread.sleep(50);
            }
            sum(rank);
          });
      ranks.assertUsable();
    }
  }
}
