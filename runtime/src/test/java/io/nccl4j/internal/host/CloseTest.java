package io.nccl4j.internal.host;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.AbortedException;
import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.DeadlineException;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ExecutableGraph;
import io.nccl4j.Graph;
import io.nccl4j.Group;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.PeerFailedException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.host.engine.Step;
import io.nccl4j.internal.host.memory.HostHeap;
import io.nccl4j.internal.host.memory.ProcessMemory;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;

/** The end of a communicator: leaving early, unfinished work, shared streams, open groups. */
@Timeout(value = 30, threadMode = ThreadMode.SEPARATE_THREAD)
class CloseTest {
  private static final int BYTES = 4096;
  private static final CommunicatorConfig QUICK =
      HostRanks.patient().closeTimeout(Duration.ofMillis(200)).build();

  private static <T extends NcclException> T failure(Class<T> type, HostCommunicator communicator) {
    return assertInstanceOf(type, communicator.failure().orElseThrow());
  }

  private static void sum(HostRanks ranks, int rank, Stream stream) {
    ranks.sum(rank, 3, stream);
  }

  /** Two looks without a step between them, as a stream gets that another one waits for. */
  @Test
  void aRankMayLeaveWhenItHasDoneItsPart() {
    try (HostRanks ranks = new HostRanks(2, BYTES)) {
      HostStream stream = HostStream.of(ranks.streams.get(0));
      ranks.sum(0, 3);
      assertTrue(stream.tryOwn());
      try {
        assertEquals(Step.BLOCKED, stream.run(stream.tail()));
        ranks.sum(1, 3);
        ranks.streams.get(1).synchronize();
        ranks.get(1).close();
        stream.checkFaults();
        stream.checkFaults();
      } finally {
        stream.disown();
      }
      ranks.streams.get(0).synchronize();
    }
  }

  @Test
  void aRankThatLeftFailsThoseThatNeedItAtOnce() {
    try (HostRanks ranks = new HostRanks(3, BYTES)) {
      for (int rank = 0; rank < 3; rank++) {
        ranks.sum(rank, 3);
      }
      ranks.streams.forEach(Stream::synchronize);
      ranks.get(1).close();
      ranks.sum(0, 3);
      long start = System.nanoTime();
      PeerFailedException e =
          assertThrows(PeerFailedException.class, ranks.streams.get(0)::synchronize);
      long millis = (System.nanoTime() - start) / 1_000_000;
      assertEquals(1, e.rank());
      assertTrue(e.getMessage().contains("rank 1 left"), e.getMessage());
      assertTrue(e.getMessage().contains("collective #1"), e.getMessage());
      assertTrue(millis < 1000, "after " + millis + " ms");
      // Rank 2 asked for nothing; it learns it from rank 0.
      e =
          assertInstanceOf(
              PeerFailedException.class,
              ranks.get(2).failure().orElseGet(() -> stateOf(ranks.get(2))));
      assertEquals(1, e.rank());
      PeerFailedException refused = assertThrows(PeerFailedException.class, () -> ranks.sum(2, 3));
      assertTrue(refused.getMessage().contains("rank 1"), refused.getMessage());
    }
  }

  private static NcclException stateOf(HostCommunicator communicator) {
    assertEquals(Communicator.State.FAILED, communicator.state());
    return communicator.failure().orElseThrow();
  }

  @Test
  void whatALeavingRankHasDoneStillCounts() throws Exception {
    // The last eager message and the last result must arrive although their rank is gone.
    for (int i = 0; i < 200; i++) {
      try (HostRanks ranks = new HostRanks(2, BYTES)) {
        ranks.in.get(0).copyFrom(new int[] {i, 2, 3});
        ranks.in.get(1).copyFrom(new int[] {1, 2, 3});
        ranks.run(
            rank -> {
              Stream stream = ranks.streams.get(rank);
              ranks.sum(rank, 3);
              if (rank == 0) {
                ranks.get(0).send(ranks.in.get(0), 3, DataType.INT32, 1, stream);
                stream.synchronize();
                ranks.get(0).close();
              } else {
                DeviceBuffer second = ranks.out.get(1).slice(16);
                ranks.get(1).recv(second, 3, DataType.INT32, 0, stream);
                stream.synchronize();
              }
            });
        int[] found = ranks.out.get(1).toInts();
        assertEquals(i + 1, found[0]);
        assertEquals(i, found[4]);
      }
    }
  }

  @Test
  void closeWithUnfinishedWorkIsBoundedAndTellsTheOthers() {
    try (HostRanks ranks = new HostRanks(2, BYTES, QUICK)) {
      ranks.sum(0, 3);
      long start = System.nanoTime();
      ranks.get(0).close();
      long millis = (System.nanoTime() - start) / 1_000_000;
      assertTrue(millis >= 200 && millis < 5000, millis + " ms");
      AbortedException e = failure(AbortedException.class, ranks.get(0));
      assertTrue(e.getMessage().contains("unfinished"), e.getMessage());
      assertTrue(e.getMessage().contains("rank 1"), e.getMessage());
      ranks.get(0).close();
      assertEquals(Communicator.State.FAILED, ranks.get(1).state());
      PeerFailedException told = failure(PeerFailedException.class, ranks.get(1));
      assertEquals(0, told.rank());
    }
  }

  /** The peer's failing wakes the ticker and the helpers while close waits for the same work. */
  @Test
  void closeWithUnfinishedWorkEndsAsSoonAsTheOperationFails() throws Exception {
    for (int i = 0; i < 20; i++) {
      try (HostRanks ranks = new HostRanks(2, BYTES)) {
        ranks.sum(0, 3);
        CountDownLatch closing = new CountDownLatch(1);
        Thread closer =
            Thread.ofPlatform()
                .start(
                    () -> {
                      closing.countDown();
                      ranks.get(0).close();
                    });
        closing.await();
        // Until the ticker has had its chance to step rank 0's stream.
        for (long end = System.nanoTime() + 5_000_000; System.nanoTime() < end; ) {
          Thread.onSpinWait();
        }
        long start = System.nanoTime();
        ranks.get(1).abort();
        closer.join();
        long millis = (System.nanoTime() - start) / 1_000_000;
        assertTrue(millis < 2000, "close returned " + millis + " ms after the abort");
      }
    }
  }

  /** State and abort are for any thread at any time, also while another one is closing. */
  @Test
  void stateAndAbortDoNotWaitForClose() throws Exception {
    try (HostRanks ranks = new HostRanks(2, BYTES)) {
      ranks.sum(0, 3);
      Thread closer = Thread.ofPlatform().start(() -> ranks.get(0).close());
      while (closer.getState() == Thread.State.NEW) {
        Thread.onSpinWait();
      }
      long start = System.nanoTime();
      Communicator.State ignored = ranks.get(0).state();
      ranks.get(0).abort();
      closer.join();
      long millis = (System.nanoTime() - start) / 1_000_000;
      assertTrue(millis < 2000, millis + " ms");
    }
  }

  @Test
  void abortFromAnotherThreadEndsAWait() throws Exception {
    try (HostRanks ranks = new HostRanks(2, BYTES)) {
      ranks.sum(0, 3);
      AtomicReference<Throwable> thrown = new AtomicReference<>();
      CountDownLatch waiting = new CountDownLatch(1);
      Thread waiter =
          Thread.ofPlatform()
              .start(
                  () -> {
                    waiting.countDown();
                    try {
                      ranks.streams.get(0).synchronize();
                    } catch (Throwable e) {
                      thrown.set(e);
                    }
                  });
      waiting.await();
      while (waiter.getState() != Thread.State.TIMED_WAITING) {
        Thread.onSpinWait();
      }
      long start = System.nanoTime();
      ranks.get(0).abort();
      ranks.get(0).abort();
      waiter.join();
      long millis = (System.nanoTime() - start) / 1_000_000;
      assertInstanceOf(AbortedException.class, thrown.get());
      assertTrue(millis < 1000, millis + " ms");
      assertEquals(Communicator.State.ABORTED, ranks.get(0).state());
      assertEquals(Communicator.State.ABORTED, ranks.get(1).state());
      ranks.get(1).abort();
      assertThrows(AbortedException.class, () -> ranks.sum(1, 3));
    }
  }

  /** Every queued work is dropped, in time that grows with their number and not with its square. */
  @Test
  void abortDropsAFullFifoQuickly() {
    CommunicatorConfig large = HostRanks.patient().fifoBytes(16 << 20).build();
    try (HostRanks ranks = new HostRanks(2, BYTES, large)) {
      int works = 100_000;
      for (int i = 0; i < works; ) {
        try (Group group = Group.start()) {
          for (int k = 0; k < 1000; k++, i++) {
            ranks.sum(0, 3);
          }
          group.launch();
        }
      }
      long start = System.nanoTime();
      ranks.get(0).abort();
      assertThrows(AbortedException.class, ranks.streams.get(0)::synchronize);
      assertFalse(HostStream.of(ranks.streams.get(0)).hasPending());
      long millis = (System.nanoTime() - start) / 1_000_000;
      System.out.println(works + " works dropped in " + millis + " ms");
      assertTrue(millis < 2000, millis + " ms");
      ranks.in.get(0).close();
    }
  }

  @Test
  void twoCommunicatorsOfOneStreamCloseInAnyOrder() {
    for (boolean inOrder : new boolean[] {true, false}) {
      HostRanks first = new HostRanks(2, BYTES);
      HostRanks second = new HostRanks(2, BYTES);
      List<Stream> shared = new ArrayList<>();
      for (int rank = 0; rank < 2; rank++) {
        Stream stream = first.get(rank).device().newStream();
        shared.add(stream);
        for (int i = 0; i < 10; i++) {
          sum(first, rank, stream);
          sum(second, rank, stream);
        }
      }
      // Closing completes the works of its own communicator, and what lies before them.
      for (int rank = 0; rank < 2; rank++) {
        (inOrder ? first : second).get(rank).close();
        (inOrder ? second : first).get(rank).close();
      }
      shared.forEach(Stream::synchronize);
      shared.forEach(Stream::close);
      first.close();
      second.close();
    }
  }

  @Test
  void aFailedWorkDropsThoseOfOtherCommunicatorsInItsStreamAndSaysSo() {
    try (HostRanks first = new HostRanks(2, BYTES);
        HostRanks second = new HostRanks(2, BYTES);
        Stream shared = first.get(0).device().newStream()) {
      sum(first, 0, shared);
      sum(second, 0, shared);
      sum(second, 1, second.streams.get(1));
      first.get(0).abort();
      NcclException e = assertThrows(AbortedException.class, shared::synchronize);
      assertTrue(e.getMessage().contains(first.get(0).name()), e.getMessage());
      AbortedException dropped = failure(AbortedException.class, second.get(0));
      assertTrue(dropped.getMessage().contains("dropped"), dropped.getMessage());
      assertTrue(dropped.getMessage().contains(first.get(0).name()), dropped.getMessage());
      e = assertThrows(NcclException.class, second.streams.get(1)::synchronize);
      assertTrue(
          e.getMessage().contains("rank 0") && e.getMessage().contains("dropped"), e.getMessage());
      // The stream stays failed; another one of the same device is not touched.
      assertThrows(AbortedException.class, shared::query);
      assertTrue(first.streams.get(0).query());
    }
  }

  @Test
  void workBehindAnotherCommunicatorsCannotBeGivenUpAlone() {
    try (HostRanks first = new HostRanks(2, BYTES, QUICK);
        HostRanks second = new HostRanks(2, BYTES, QUICK);
        Stream shared = first.get(0).device().newStream()) {
      sum(first, 0, shared);
      sum(second, 0, shared);
      InvalidUsageException e = assertThrows(InvalidUsageException.class, second.get(0)::close);
      assertTrue(e.getMessage().contains("another communicator"), e.getMessage());
      first.get(0).abort();
      second.get(0).close();
    }
  }

  @Test
  void aGraphBehindAnotherCommunicatorsWorkCannotBeGivenUpAlone() {
    try (HostRanks first = new HostRanks(2, BYTES, QUICK);
        HostRanks second = new HostRanks(2, BYTES, QUICK);
        Stream shared = first.get(0).device().newStream()) {
      shared.beginCapture();
      sum(second, 0, shared);
      ExecutableGraph graph;
      try (Graph captured = shared.endCapture()) {
        graph = captured.instantiate();
      }
      sum(first, 0, shared);
      graph.launch(shared);
      InvalidUsageException e = assertThrows(InvalidUsageException.class, second.get(0)::close);
      assertTrue(e.getMessage().contains("a graph cannot be given up"), e.getMessage());
      assertEquals(1, second.get(0).counters().unfinishedGraphLaunches());
      first.get(0).abort();
      second.get(0).close();
      assertEquals(0, second.get(0).counters().unfinishedGraphLaunches());
      graph.close();
    }
  }

  @Test
  void closeInsideAnOpenGroupIsRefused() {
    try (HostRanks ranks = new HostRanks(2, BYTES)) {
      long start = System.nanoTime();
      try (Group group = Group.start()) {
        ranks.sum(0, 3);
        InvalidUsageException e = assertThrows(InvalidUsageException.class, ranks.get(0)::close);
        assertTrue(e.getMessage().contains("group"), e.getMessage());
        assertEquals(Communicator.State.READY, ranks.get(0).state());
        group.launch();
      }
      long millis = (System.nanoTime() - start) / 1_000_000;
      assertTrue(millis < 5000, millis + " ms");
      ranks.sum(1, 3);
      ranks.streams.forEach(Stream::synchronize);
      Group discarded = Group.start();
      ranks.sum(0, 3);
      assertThrows(InvalidUsageException.class, ranks.get(0)::close);
      discarded.close();
      ranks.get(0).close();
    }
  }

  @Test
  void splitInsideAnOpenGroupIsRefused() {
    try (HostRanks ranks = new HostRanks(1, BYTES)) {
      Group group = Group.start();
      InvalidUsageException e =
          assertThrows(InvalidUsageException.class, () -> ranks.get(0).split(0, 0));
      group.close();
      assertTrue(e.getMessage().contains("group"), e.getMessage());
    }
  }

  /** Closed at once, freed when the work is done: what holds of copies, scalars and operations. */
  @Test
  void theMemoryOfAClosedBufferIsFreedWhenItsWorkIsDone() {
    HostHeap heap = ProcessMemory.self().heap();
    try (HostRanks ranks = new HostRanks(2, BYTES)) {
      Stream stream = ranks.streams.get(0);
      Device device = ranks.get(0).device();
      long before = heap.allocatedBytes();
      DeviceBuffer operand = device.allocate(BYTES);
      DeviceBuffer scalar = device.allocate(8);
      DeviceBuffer copied = device.allocate(BYTES);
      DeviceBuffer unused = device.allocate(BYTES);
      scalar.copyFrom(new int[] {2});
      DeviceBuffer part = operand.slice(64);
      ranks.get(0).allReduce(part, part, 3, DataType.INT32, ReduceOp.preMulSum(scalar), stream);
      stream.copy(copied, ranks.out.get(0));
      long taken = heap.allocatedBytes();
      unused.close();
      assertEquals(taken - BYTES, heap.allocatedBytes(), "nothing uses it");
      operand.close();
      scalar.close();
      copied.close();
      assertTrue(part.isClosed());
      assertThrows(InvalidUsageException.class, () -> part.copyFrom(new int[3]));
      assertThrows(InvalidUsageException.class, () -> stream.fill(copied, (byte) 0));
      assertEquals(taken - BYTES, heap.allocatedBytes(), "the operation and the copy wait");
      ranks
          .get(1)
          .allReduce(
              ranks.in.get(1),
              ranks.out.get(1),
              3,
              DataType.INT32,
              ReduceOp.preMulSum(1L),
              ranks.streams.get(1));
      ranks.streams.forEach(Stream::synchronize);
      assertEquals(before, heap.allocatedBytes());
    }
  }

  /** A discarded group uses nothing any more, and one of another thread still does. */
  @Test
  void aGroupUsesItsBuffersUntilItIsDiscarded() throws Exception {
    HostHeap heap = ProcessMemory.self().heap();
    try (HostRanks ranks = new HostRanks(1, BYTES);
        Stream stream = ranks.get(0).device().newStream()) {
      long before = heap.allocatedBytes();
      Group group = Group.start();
      DeviceBuffer buffer = ranks.get(0).device().allocate(BYTES);
      ranks.get(0).allReduce(buffer, buffer, 3, DataType.INT32, ReduceOp.SUM, stream);
      Thread.ofPlatform().start(buffer::close).join();
      assertEquals(before + BYTES, heap.allocatedBytes());
      group.close();
      assertEquals(before, heap.allocatedBytes());
    }
  }

  @Test
  void aSynchronizeThatRanOutOfTimeSaysWhatItWaitsFor() {
    try (HostRanks ranks = new HostRanks(3, BYTES)) {
      Stream stream = ranks.streams.get(0);
      for (int rank = 0; rank < 3; rank++) {
        ranks.sum(rank, 3);
      }
      ranks.streams.forEach(Stream::synchronize);
      ranks.sum(0, 5);
      ranks.sum(1, 5);
      long start = System.nanoTime();
      NcclException e =
          assertThrows(DeadlineException.class, () -> stream.synchronize(Duration.ofMillis(100)));
      long millis = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
      assertTrue(millis >= 100 && millis < 2000, millis + " ms");
      String message = e.getMessage();
      assertTrue(message.contains("allReduce(5 int32, sum) #2"), message);
      assertTrue(message.contains("rank 2 (its last collective is #1"), message);
      assertFalse(message.contains("rank 1 ("), message);
      // Nothing has failed: the third rank may still come.
      ranks.sum(2, 5);
      ranks.streams.forEach(Stream::synchronize);
    }
  }

  @Test
  void theOperationDeadlineNamesWhoIsMissingAndTheirLastCollective() {
    CommunicatorConfig config =
        HostRanks.patient().operationTimeout(Duration.ofMillis(200)).build();
    try (HostRanks ranks = new HostRanks(3, BYTES, config)) {
      for (int rank = 0; rank < 3; rank++) {
        ranks.sum(rank, 7);
      }
      ranks.streams.forEach(Stream::synchronize);
      ranks.sum(0, 9);
      long start = System.nanoTime();
      NcclException e = assertThrows(DeadlineException.class, ranks.streams.get(0)::synchronize);
      long millis = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
      assertTrue(millis >= 200 && millis < 3000, millis + " ms");
      for (String part :
          new String[] {
            "allReduce(9 int32, sum) #2",
            "200 ms",
            "rank 1 (its last collective is #1: allReduce(7 int32, sum))",
            "rank 2 ("
          }) {
        assertTrue(e.getMessage().contains(part), e.getMessage());
      }
      ranks.sum(1, 9);
      throw new AssertionError("rank 1 must hear of it");
    } catch (PeerFailedException e) {
      assertEquals(List.of(1, 2), e.failedRanks(), e.getMessage());
      assertTrue(e.getMessage().contains("deadline"), e.getMessage());
    }
  }

  @Test
  void aRankThatNeverComesEndsInitialisation() {
    CommunicatorConfig config = HostRanks.patient().initTimeout(Duration.ofMillis(300)).build();
    UniqueId id = UniqueId.create(Backend.HOST);
    long before = ProcessMemory.self().heap().allocatedBytes();
    long start = System.nanoTime();
    NcclException e =
        assertThrows(
            DeadlineException.class,
            () -> Communicator.initRank(Device.get(Backend.HOST, 0), 3, id, 0, config));
    long millis = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
    assertTrue(millis >= 300 && millis < 5000, millis + " ms");
    assertTrue(e.getMessage().contains("1, 2"), e.getMessage());
    assertEquals(before, ProcessMemory.self().heap().allocatedBytes());
  }
}
