package io.nccl4j.internal.host;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.AbortedException;
import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.InterruptedWaitException;
import io.nccl4j.NcclException;
import io.nccl4j.PeerFailedException;
import io.nccl4j.Tier;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.bootstrap.ChildJvm;
import io.nccl4j.internal.host.engine.Step;
import io.nccl4j.internal.host.join.Arrival;
import io.nccl4j.internal.host.layout.ControlBlock;
import io.nccl4j.internal.host.progress.Driven;
import io.nccl4j.internal.host.progress.Progress;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;

/**
 * Communicators that are split and closed at once, over and over: a control block is freed after
 * the last touch of its last rank. What is put where it lay keeps its bytes, no close fails, and
 * nothing is left over.
 */
@Timeout(value = 300, threadMode = ThreadMode.SEPARATE_THREAD)
class SplitAndCloseTest {
  private static final int NRANKS = 2;
  private static final byte CANARY = 0x5a;

  /**
   * Splits and closes, and fills the memory that comes free in between.
   *
   * @return what went wrong in words, empty if nothing did
   */
  static String churn(Communicator communicator, int count) {
    int bytes = (int) ControlBlock.bytes(NRANKS);
    byte[] canary = new byte[bytes];
    Arrays.fill(canary, CANARY);
    byte[] found = new byte[bytes];
    int failed = 0;
    long changed = 0;
    String first = "";
    for (int i = 0; i < count; i++) {
      Communicator child = communicator.split(0, communicator.rank());
      try {
        child.close();
      } catch (NcclException e) {
        failed++;
        first = first.isEmpty() ? e.getMessage() : first;
      }
      try (DeviceBuffer reused = communicator.device().allocate(bytes)) {
        reused.copyFrom(canary);
        for (int spin = 0; spin < 2000; spin++) {
          Thread.onSpinWait();
        }
        reused.copyTo(found);
        for (int at = Arrays.mismatch(canary, found); at >= 0 && at < bytes; at++) {
          changed += found[at] == CANARY ? 0 : 1;
        }
      }
    }
    return failed == 0 && changed == 0
        ? ""
        : failed + " of " + count + " closes failed (" + first + "), " + changed + " bytes changed";
  }

  private static void churnProcesses(int count) throws Exception {
    try (ChildJvm peer = ChildJvm.start(RankMain.class)) {
      UniqueId id = UniqueId.create(Backend.HOST);
      peer.tell("join " + id + " 2 1");
      try (Communicator own =
          Communicator.initRank(
              Device.get(Backend.HOST, 0), NRANKS, id, 0, HostRanks.patient().build())) {
        peer.expect("joined");
        // The first rounds load classes and allocate what is kept.
        peer.tell("churn 20");
        String warm = churn(own, 20);
        peer.expect("churned");
        peer.tell("held");
        peer.expect("held");
        Held before = Held.now();
        peer.tell("churn " + count);
        String here = churn(own, count);
        String there = peer.expect("churned");
        assertEquals("", warm + here + there);
        Held.assertNoMoreThan(before);
        peer.tell("same");
        peer.expect("same");
        peer.tell("close");
      }
      peer.expect("closed");
    }
  }

  private static void churnThreads(int count) throws Exception {
    try (HostRanks ranks = new HostRanks(NRANKS, 64)) {
      ranks.run(rank -> assertEquals("", churn(ranks.get(rank), 20)));
      Held before = Held.now();
      ranks.run(rank -> assertEquals("", churn(ranks.get(rank), count)));
      Held.assertNoMoreThan(before);
    }
  }

  @Tag("process")
  @Test
  void processes() throws Exception {
    churnProcesses(Tier.choose(400, 1500));
  }

  @Test
  void threads() throws Exception {
    churnThreads(Tier.choose(400, 1500));
  }

  /** Owns the stream in which a rank waits for the other in its nth exchange, which it shows. */
  private static Driven hold(HostCommunicator rank, Thread thread, int exchange) {
    while (true) {
      for (Driven stream : Progress.streams()) {
        if (rank.counters().collectives() == exchange
            && stream.isSubmittedBy(thread)
            && stream.hasPending()
            && stream.tryOwn()) {
          if (stream.hasPending()) {
            assertEquals(Step.BLOCKED, stream.run(stream.tail()));
            return stream;
          }
          stream.disown();
        }
      }
      Thread.onSpinWait();
    }
  }

  private static Thread split(HostRanks ranks, int rank, CompletableFuture<Communicator> child) {
    return Thread.ofPlatform()
        .daemon()
        .start(
            () -> {
              try {
                child.complete(ranks.get(rank).split(0, rank));
              } catch (NcclException e) {
                child.completeExceptionally(e);
              }
            });
  }

  /**
   * A split in which rank 0 waits in the child for rank 1, which does not hear that it may go on.
   */
  private static final class Apart {
    final List<CompletableFuture<Communicator>> children =
        List.of(new CompletableFuture<>(), new CompletableFuture<>());
    final Thread zero;
    final Driven lastExchange;

    Apart(HostRanks ranks) throws InterruptedException {
      zero = split(ranks, 0, children.get(0));
      Driven firstExchange = hold(ranks.get(0), zero, 1);
      lastExchange = hold(ranks.get(1), split(ranks, 1, children.get(1)), 2);
      firstExchange.disown();
      while (Arrays.stream(zero.getStackTrace())
          .noneMatch(frame -> frame.getClassName().equals(Arrival.class.getName()))) {
        Thread.sleep(1);
      }
    }

    Throwable failure(int rank) {
      return assertThrows(ExecutionException.class, children.get(rank)::get).getCause();
    }
  }

  @Test
  void anAbortInTheMiddleOfASplitEndsItOnAllRanks() throws Exception {
    try (HostRanks ranks = new HostRanks(NRANKS, 64)) {
      Apart split = new Apart(ranks);
      long start = System.nanoTime();
      ranks.get(1).abort();
      split.lastExchange.disown();
      for (int rank = 0; rank < NRANKS; rank++) {
        Throwable e = split.failure(rank);
        assertEquals(List.of(1), assertInstanceOf(AbortedException.class, e).failedRanks());
      }
      long millis = (System.nanoTime() - start) / 1_000_000;
      assertTrue(millis < 5000, () -> "after " + millis + " ms");
    }
  }

  /** Rank 0 has given the child up when rank 1 comes to it. */
  @Test
  void whoComesToAChildThatWasGivenUpHearsSo() throws Exception {
    comeToAChildThatWasGivenUp();
    Held before = Held.now();
    comeToAChildThatWasGivenUp();
    Held.assertNoMoreThan(before);
  }

  private static void comeToAChildThatWasGivenUp() throws Exception {
    try (HostRanks ranks = new HostRanks(NRANKS, 64)) {
      Apart split = new Apart(ranks);
      split.zero.interrupt();
      assertInstanceOf(InterruptedWaitException.class, split.failure(0));
      split.lastExchange.disown();
      PeerFailedException e = assertInstanceOf(PeerFailedException.class, split.failure(1));
      assertEquals(List.of(0), e.failedRanks());
      ranks.run(rank -> ranks.get(rank).split(0, rank).close());
    }
  }

  /** About a minute each. */
  @Tag("process")
  @Tag("long")
  @Test
  void processesForLong() throws Exception {
    churnProcesses(60_000);
  }

  @Tag("long")
  @Test
  void threadsForLong() throws Exception {
    churnThreads(60_000);
  }
}
