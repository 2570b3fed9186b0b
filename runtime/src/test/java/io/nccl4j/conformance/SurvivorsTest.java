package io.nccl4j.conformance;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.AbortedException;
import io.nccl4j.Communicator;
import io.nccl4j.Communicators;
import io.nccl4j.Group;
import io.nccl4j.InterruptedWaitException;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.PeerFailedException;
import io.nccl4j.ReduceOp;
import io.nccl4j.memory.MemoryPurpose;
import io.nccl4j.memory.MemoryReport;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Communicators of the ranks that are left, here threads; PeerDeathTest has processes. */
@Timeout(value = 60, threadMode = ThreadMode.SEPARATE_THREAD)
class SurvivorsTest {
  /** Never passes where all come. */
  private static final Duration LONG = Duration.ofSeconds(30);

  private static final Duration SHORT = Duration.ofMillis(200);

  private final ExecutorService threads = Executors.newCachedThreadPool();

  @BeforeEach
  void onHost() {
    TestBackend.requireHost("NCCL ends what is left of a failed communicator");
    TestBackend.requireOneHost("survivors are found on one host");
  }

  @AfterEach
  void end() {
    threads.shutdownNow();
  }

  private Future<Communicator> survivors(Communicator of, Duration timeout) {
    return threads.submit(() -> of.survivors(timeout));
  }

  private static Communicator get(Future<Communicator> future) throws Exception {
    return future.get(20, TimeUnit.SECONDS);
  }

  private static NcclException failure(Future<?> future) {
    return assertInstanceOf(
        NcclException.class,
        assertThrows(ExecutionException.class, () -> future.get(20, TimeUnit.SECONDS)).getCause());
  }

  /** Their new ranks and size, and a sum of the old ranks over all of them. */
  private void check(List<Communicator> news, int... oldRanks) throws Exception {
    assertEquals(oldRanks.length, news.size());
    List<Future<long[]>> sums = new ArrayList<>();
    for (int i = 0; i < news.size(); i++) {
      Communicator one = news.get(i);
      assertEquals(i, one.rank());
      assertEquals(oldRanks.length, one.nranks());
      assertEquals(Communicator.State.READY, one.state());
      long[] data = {oldRanks[i], 1};
      sums.add(
          threads.submit(
              () -> {
                one.allReduce(data, ReduceOp.SUM);
                return data;
              }));
    }
    long[] wanted = {Arrays.stream(oldRanks).sum(), oldRanks.length};
    for (Future<long[]> sum : sums) {
      assertArrayEquals(wanted, sum.get(20, TimeUnit.SECONDS));
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2, 5, 33})
  void allWhoComeGoOnInTheOldOrder(int nranks) throws Exception {
    try (Communicators all = TestBackend.communicators(nranks)) {
      all.get(0).abort();
      List<Future<Communicator>> found = new ArrayList<>();
      for (int r = 0; r < nranks; r++) {
        found.add(survivors(all.get(nranks - 1 - r), LONG));
      }
      List<Communicator> news = new ArrayList<>();
      int[] old = new int[nranks];
      for (int r = 0; r < nranks; r++) {
        news.add(get(found.get(nranks - 1 - r)));
        old[r] = r;
      }
      check(news, old);
      news.forEach(Communicator::close);
    }
  }

  @Test
  void whoHasClosedIsNotWaitedFor() throws Exception {
    try (Communicators all = TestBackend.communicators(4)) {
      all.get(1).abort();
      all.get(1).close();
      List<Future<Communicator>> found =
          List.of(
              survivors(all.get(0), LONG),
              survivors(all.get(2), LONG),
              survivors(all.get(3), LONG));
      List<Communicator> news = List.of(get(found.get(0)), get(found.get(1)), get(found.get(2)));
      check(news, 0, 2, 3);
      // The old one may go first, or last.
      all.get(2).close();
      check(news, 0, 2, 3);
      news.forEach(Communicator::close);
    }
  }

  @Test
  void whoseTaskThrewIsNotWaitedFor() throws Exception {
    try (Communicators all = TestBackend.communicators(3)) {
      IllegalStateException thrown =
          assertThrows(
              IllegalStateException.class,
              () ->
                  all.run(
                      comm -> {
                        if (comm.rank() == 1) {
                          throw new IllegalStateException("rank 1 is out");
                        }
                        AbortedException e =
                            assertThrows(
                                AbortedException.class,
                                () -> comm.allReduce(new int[1], ReduceOp.SUM));
                        assertEquals(List.of(1), e.failedRanks());
                        try (Communicator left = comm.survivors(LONG)) {
                          long[] old = new long[2];
                          left.longs().allGather(new long[] {comm.rank()}, old);
                          assertArrayEquals(new long[] {0, 2}, old);
                        }
                      }));
      assertEquals("rank 1 is out", thrown.getMessage());
      assertEquals(0, thrown.getSuppressed().length);
    }
  }

  @Test
  void whoComesTooLateIsRefused() throws Exception {
    try (Communicators all = TestBackend.communicators(3)) {
      all.get(0).abort();
      List<Future<Communicator>> found =
          List.of(survivors(all.get(1), LONG), survivors(all.get(2), SHORT));
      List<Communicator> news = List.of(get(found.get(0)), get(found.get(1)));
      check(news, 1, 2);
      PeerFailedException late =
          assertThrows(PeerFailedException.class, () -> all.get(0).survivors(LONG));
      assertEquals(List.of(0), late.failedRanks());
      assertTrue(late.getMessage().contains("without rank 0"), late.getMessage());
      check(news, 1, 2);
      news.forEach(Communicator::close);
    }
  }

  /** The one that is interrupted may be part of the decision or not: nobody waits for it. */
  @Test
  void whoIsInterruptedIsNotWaitedFor() throws Exception {
    for (int round = 0; round < 20; round++) {
      try (Communicators all = TestBackend.communicators(3)) {
        all.get(0).abort();
        CompletableFuture<Thread> waiting = new CompletableFuture<>();
        Future<Communicator> interrupted =
            threads.submit(
                () -> {
                  waiting.complete(Thread.currentThread());
                  return all.get(0).survivors(LONG);
                });
        Thread thread = waiting.get();
        Future<Communicator> second = survivors(all.get(1), LONG);
        if (round % 2 == 0) {
          Thread.sleep(2);
        }
        thread.interrupt();
        Future<Communicator> third = survivors(all.get(2), LONG);
        List<Communicator> news = new ArrayList<>(List.of(get(second), get(third)));
        assertInstanceOf(InterruptedWaitException.class, failure(interrupted));
        if (news.getFirst().nranks() == 3) {
          // It was counted on, and has said that it does not come.
          NcclException why = news.getFirst().failure().orElseThrow();
          assertEquals(List.of(0), why.failedRanks(), why::getMessage);
          List<Future<Communicator>> again =
              List.of(survivors(news.get(0), LONG), survivors(news.get(1), LONG));
          List<Communicator> failed = news;
          news = List.of(get(again.get(0)), get(again.get(1)));
          failed.forEach(Communicator::close);
        }
        check(news, 1, 2);
        news.forEach(Communicator::close);
      }
    }
  }

  /** One after the other fails, each in the communicator that is left by then. */
  @Test
  void survivorsMayFailAgain() throws Exception {
    try (Communicators all = TestBackend.communicators(5)) {
      List<Communicator> left = new ArrayList<>();
      all.forEach(left::add);
      while (left.size() > 1) {
        int victim = left.size() / 2;
        left.get(victim).abort();
        left.get(victim).close();
        left.remove(victim);
        List<Future<Communicator>> found =
            left.stream().map(comm -> survivors(comm, LONG)).toList();
        List<Communicator> news = new ArrayList<>();
        for (Future<Communicator> one : found) {
          news.add(get(one));
        }
        left.forEach(Communicator::close);
        left = news;
        int[] ones = new int[left.size()];
        Arrays.fill(ones, 7);
        check(left, ones);
      }
      left.forEach(Communicator::close);
    }
  }

  @Test
  void nothingIsLeftBehind() throws Exception {
    long before = controlBytes();
    for (int round = 0; round < 3; round++) {
      try (Communicators all = TestBackend.communicators(3)) {
        all.get(2).abort();
        all.get(2).close();
        List<Future<Communicator>> found =
            List.of(survivors(all.get(0), LONG), survivors(all.get(1), LONG));
        List<Communicator> news = List.of(get(found.get(0)), get(found.get(1)));
        check(news, 0, 1);
        news.forEach(Communicator::close);
      }
    }
    assertTrue(TestBackend.eventually(() -> controlBytes() <= before), () -> "" + controlBytes());
  }

  private static long controlBytes() {
    long bytes = 0;
    for (int r = 0; r < 3; r++) {
      bytes += MemoryReport.of(TestBackend.device(r)).bytes(MemoryPurpose.CONTROL);
    }
    return bytes;
  }

  @Test
  @SuppressWarnings("try") // the group need only be open
  void wrongCallsAreRefused() throws Exception {
    try (Communicators all = TestBackend.communicators(2)) {
      Communicator comm = all.get(0);
      refused(InvalidUsageException.class, comm, LONG, "not failed");
      comm.abort();
      refused(InvalidArgumentException.class, comm, null, "timeout");
      refused(InvalidArgumentException.class, comm, Duration.ofNanos(-1), "timeout");
      try (Group group = Group.start()) {
        refused(InvalidUsageException.class, comm, LONG, "group");
      }
      comm.survivors(Duration.ZERO).close();
      refused(InvalidUsageException.class, comm, LONG, "before");
      comm.close();
      refused(InvalidUsageException.class, comm, LONG, "closed");
    }
  }

  private static void refused(
      Class<? extends NcclException> type, Communicator comm, Duration timeout, String word) {
    NcclException e = assertThrows(type, () -> comm.survivors(timeout));
    assertTrue(e.getMessage().contains(word), e.getMessage());
  }
}
