package io.nccl4j.conformance;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.AbortedException;
import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Communicators;
import io.nccl4j.DataType;
import io.nccl4j.DeadlineException;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Event;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.MismatchException;
import io.nccl4j.NcclException;
import io.nccl4j.PeerFailedException;
import io.nccl4j.PinnedBuffer;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * Order and completion. A stream is held up by a barrier on one of two ranks: it stays where it is
 * until the other rank has called it, too.
 */
@Timeout(value = 60, threadMode = ThreadMode.SEPARATE_THREAD)
class StreamsAndEventsTest {
  private static final Duration SHORT = Duration.ofMillis(50);

  private static void hold(Ranks ranks, Stream stream) {
    ranks.get(0).barrier(stream);
  }

  private static void letGo(Ranks ranks) {
    ranks.get(1).barrier(ranks.streams.get(1));
  }

  private static int sum(byte[] bytes) {
    int sum = 0;
    for (byte b : bytes) {
      sum += b;
    }
    return sum;
  }

  @Test
  void copiesAndFillsHappenInOrder() {
    Device device = TestBackend.device(0);
    try (Stream stream = device.newStream();
        DeviceBuffer a = device.allocate(1000);
        DeviceBuffer b = device.allocate(1001)) {
      stream.fill(b, (byte) 9);
      stream.fill(a, (byte) 1);
      stream.copy(b.slice(1), a);
      stream.fill(a.slice(1, 998), (byte) 2);
      stream.copy(b.slice(3, 10), a.slice(500, 10));
      stream.fill(a, (byte) 3);
      stream.synchronize();
      byte[] bytes = b.toBytes();
      assertEquals(9, bytes[0]);
      assertEquals(1, bytes[2]);
      assertEquals(2, bytes[3]);
      assertEquals(2, bytes[12]);
      assertEquals(1, bytes[13]);
      assertEquals(9 + 1000 + 10, sum(bytes));
      assertEquals(3000, sum(a.toBytes()));
    }
  }

  @Test
  void copiesOfNoBytesAreAllowed() {
    Device device = TestBackend.device(0);
    try (Stream stream = device.newStream();
        DeviceBuffer a = device.allocate(0);
        DeviceBuffer b = device.allocate(16)) {
      stream.copy(b, a);
      stream.fill(a, (byte) 1);
      stream.synchronize();
      assertEquals(0, a.toBytes().length);
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 4096, (1 << 20) + 3})
  void pinnedMemoryGoesThereAndBack(int bytes) {
    Device device = TestBackend.device(0);
    try (Stream stream = device.newStream();
        DeviceBuffer there = device.allocate(bytes);
        PinnedBuffer from = device.allocatePinned(bytes);
        PinnedBuffer to = device.allocatePinned(bytes)) {
      byte[] data = new byte[bytes];
      for (int i = 0; i < bytes; i++) {
        data[i] = (byte) (i * 17 + (i >> 8));
        from.segment().set(ValueLayout.JAVA_BYTE, i, data[i]);
      }
      stream.copy(there, from);
      stream.copy(to, there);
      stream.synchronize();
      assertArrayEquals(data, to.segment().toArray(ValueLayout.JAVA_BYTE));
      assertArrayEquals(data, there.toBytes());
      assertEquals(bytes, to.byteSize());
    }
  }

  @Test
  void arraysOfEveryKindGoThereAndBack() {
    Device device = TestBackend.device(0);
    try (DeviceBuffer buffer = device.allocate(64)) {
      buffer.copyFrom(new double[] {1.5, -2});
      assertArrayEquals(new double[] {1.5, -2}, buffer.slice(0, 16).toDoubles());
      buffer.copyFrom(new float[] {1.5f, -2});
      assertArrayEquals(new float[] {1.5f, -2}, buffer.slice(0, 11).toFloats());
      buffer.copyFrom(new long[] {1L << 40, -2});
      assertArrayEquals(new long[] {1L << 40, -2}, buffer.slice(0, 16).toLongs());
      buffer.slice(8).copyFrom(new int[] {3, 4});
      assertArrayEquals(new int[] {3, 4}, buffer.slice(8, 8).toInts());
      short[] shorts = new short[2];
      buffer.slice(8).copyTo(shorts);
      assertArrayEquals(new short[] {3, 0}, shorts);
      assertEquals(3, buffer.slice(8, 1).toBytes()[0]);
    }
  }

  @Test
  void aSliceSharesMemoryAndLife() {
    Device device = TestBackend.device(0);
    DeviceBuffer whole = device.allocate(100);
    DeviceBuffer part = whole.slice(10, 20).slice(5);
    assertEquals(15, part.byteSize());
    assertEquals(whole.address() + 15, part.address());
    part.copyFrom(new byte[] {42});
    assertEquals(42, whole.toBytes()[15]);
    DeviceBuffer other = whole.slice(0, 10);
    other.close();
    assertTrue(other.isClosed());
    assertFalse(whole.isClosed());
    assertFalse(part.isClosed());
    whole.close();
    assertTrue(part.isClosed());
    whole.close();
    part.close();
  }

  @Test
  void allocatedMemoryIsAligned() {
    Device device = TestBackend.device(0);
    try (DeviceBuffer a = device.allocate(1);
        DeviceBuffer b = device.allocate(DataType.FLOAT64, 3)) {
      assertEquals(0, a.address() % 4096);
      assertEquals(0, b.address() % 4096);
      assertEquals(1, a.byteSize());
      assertEquals(24, b.byteSize());
    }
  }

  @Test
  void anEventOrdersTwoStreams() {
    try (Ranks ranks = new Ranks(2);
        Stream other = ranks.get(0).device().newStream();
        Event event = ranks.get(0).device().newEvent()) {
      Stream held = ranks.streams.get(0);
      DeviceBuffer buffer = ranks.in.get(0).slice(0, 8);
      buffer.copyFrom(new byte[8]);
      hold(ranks, held);
      held.fill(buffer, (byte) 1);
      held.record(event);
      other.waitFor(event);
      other.fill(buffer.slice(0, 4), (byte) 2);
      assertFalse(other.query());
      assertThrows(DeadlineException.class, () -> other.synchronize(SHORT));
      assertEquals(0, sum(buffer.toBytes()));
      letGo(ranks);
      other.synchronize();
      assertEquals(4 + 8, sum(buffer.toBytes()));
      assertTrue(other.query());
      ranks.synchronize();
    }
  }

  @Test
  void waitingForAnEventTakesItsLastRecordAtThatMoment() {
    try (Ranks ranks = new Ranks(2);
        Stream other = ranks.get(0).device().newStream();
        Event event = ranks.get(0).device().newEvent()) {
      Stream held = ranks.streams.get(0);
      other.waitFor(event);
      other.synchronize();
      held.record(event);
      other.waitFor(event);
      hold(ranks, held);
      held.record(event);
      // What waits for the first record does not wait for the second.
      other.synchronize();
      assertFalse(event.isComplete());
      letGo(ranks);
      event.synchronize();
      assertTrue(event.isComplete());
      ranks.synchronize();
    }
  }

  @Test
  void eventsTellTheTimeBetweenThem() {
    try (Ranks ranks = new Ranks(2);
        Event start = ranks.get(0).device().newEvent();
        Event end = ranks.get(0).device().newEvent()) {
      Stream stream = ranks.streams.get(0);
      assertTrue(start.isComplete());
      assertThrows(InvalidUsageException.class, () -> end.elapsedSince(start));
      stream.record(start);
      hold(ranks, stream);
      stream.record(end);
      assertThrows(InvalidUsageException.class, () -> end.elapsedSince(start));
      assertThrows(DeadlineException.class, () -> stream.synchronize(SHORT));
      letGo(ranks);
      end.synchronize();
      Duration elapsed = end.elapsedSince(start);
      assertTrue(elapsed.compareTo(Duration.ofMillis(40)) >= 0, elapsed::toString);
      assertTrue(elapsed.compareTo(Duration.ofSeconds(30)) < 0, elapsed::toString);
      ranks.synchronize();
    }
  }

  @Test
  void aFutureNeedsNoThread() throws Exception {
    try (Ranks ranks = new Ranks(2);
        Event event = ranks.get(0).device().newEvent()) {
      assertTrue(event.toFuture().isDone());
      hold(ranks, ranks.streams.get(0));
      ranks.streams.get(0).record(event);
      CompletableFuture<Void> future = event.toFuture();
      assertFalse(future.isDone());
      letGo(ranks);
      future.get(10, TimeUnit.SECONDS);
      assertTrue(event.isComplete());
      ranks.synchronize();
    }
  }

  @Test
  void aFutureFailsWithWhatWasBeforeTheRecord() {
    try (Ranks ranks = new Ranks(2);
        Event event = ranks.get(0).device().newEvent()) {
      ranks.sum(0, 4);
      ranks.streams.get(0).record(event);
      ranks.sum(1, 5);
      ExecutionException failure =
          assertThrows(ExecutionException.class, () -> event.toFuture().get(10, TimeUnit.SECONDS));
      assertInstanceOf(MismatchException.class, failure.getCause());
      assertThrows(MismatchException.class, event::synchronize);
      CompletionException again =
          assertThrows(CompletionException.class, () -> event.toFuture().join());
      assertInstanceOf(MismatchException.class, again.getCause());
      assertThrows(NcclException.class, ranks.streams.get(1)::synchronize);
    }
  }

  @Test
  void synchronizeGivesUpInTimeAndTheWorkGoesOn() {
    try (Ranks ranks = new Ranks(2)) {
      ranks.put(0, 1, 2);
      ranks.put(1, 10, 20);
      Stream stream = ranks.streams.get(0);
      ranks.sum(0, 2);
      long start = System.nanoTime();
      DeadlineException e =
          assertThrows(DeadlineException.class, () -> stream.synchronize(Duration.ofMillis(200)));
      long millis = (System.nanoTime() - start) / 1_000_000;
      assertTrue(millis >= 190 && millis < 5000, millis + " ms");
      assertTrue(e.getMessage().matches("(?is).*all_?reduce.*"), e.getMessage());
      assertTrue(e.getMessage().contains("rank"), e.getMessage());
      assertEquals(Communicator.State.READY, ranks.get(0).state());
      assertFalse(stream.query());
      ranks.sum(1, 2);
      ranks.synchronize();
      assertArrayEquals(new int[] {11, 22}, ranks.got(0, 2));
      ranks.assertUsable();
    }
  }

  @Test
  void queryMovesWork() {
    try (Ranks ranks = new Ranks(3)) {
      for (int rank = 0; rank < 3; rank++) {
        ranks.put(rank, rank + 1);
        ranks.sum(rank, 1000);
      }
      assertTrue(
          TestBackend.eventually(() -> ranks.streams.stream().allMatch(Stream::query)),
          "query alone must bring work to its end");
      assertEquals(6, ranks.got(2, 1)[0]);
    }
  }

  @Test
  void workMovesWithoutAnybodyWaitingForIt() throws Exception {
    try (Ranks ranks = new Ranks(2);
        Event event = ranks.get(0).device().newEvent()) {
      ranks.put(0, 5);
      ranks.put(1, 6);
      ranks.sum(0, 100_000);
      ranks.streams.get(0).record(event);
      ranks.sum(1, 100_000);
      // Neither stream is synchronised or queried by this thread.
      event.toFuture().get(10, TimeUnit.SECONDS);
      assertEquals(11, ranks.got(0, 1)[0]);
      ranks.synchronize();
    }
  }

  @Test
  @SuppressWarnings("try")
  void closingAStreamCompletesWhatIsQueued() {
    try (Ranks ranks = new Ranks(2)) {
      ranks.put(0, 1);
      ranks.put(1, 2);
      ranks.sum(1, 1);
      try (Stream stream = ranks.get(0).device().newStream()) {
        ranks.sum(0, 1, stream);
        stream.fill(ranks.in.get(0).slice(0, 4), (byte) 1);
        stream.close();
        stream.close();
      }
      assertEquals(3, ranks.got(0, 1)[0]);
      assertEquals(0x01010101, ranks.in.get(0).slice(0, 4).toInts()[0]);
      ranks.synchronize();
    }
  }

  @Test
  void moreWorkThanAnyQueueHoldsIsTaken() throws Exception {
    try (Communicators all = TestBackend.communicators(2)) {
      all.run(
          communicator -> {
            Device device = communicator.device();
            try (Stream stream = device.newStream();
                DeviceBuffer buffer = device.allocate(8)) {
              buffer.copyFrom(new long[] {communicator.rank() + 1});
              for (int i = 0; i < 20_000; i++) {
                communicator.allReduce(buffer, buffer, 1, DataType.UINT64, ReduceOp.SUM, stream);
              }
              stream.synchronize();
              // 3 · 2^19999 wraps to 0.
              assertEquals(0, buffer.toLongs()[0]);
            }
          });
    }
  }

  @Test
  void collectivesOfOneCommunicatorRunInTheOrderTheyWereCalledOnAnyStreams() throws Exception {
    try (Communicators all = TestBackend.communicators(3)) {
      all.run(
          communicator -> {
            Device device = communicator.device();
            int rank = communicator.rank();
            int rounds = 200;
            try (Stream a = device.newStream();
                Stream b = device.newStream();
                DeviceBuffer buffer = device.allocate(4L * rounds)) {
              int[] values = new int[rounds];
              for (int i = 0; i < rounds; i++) {
                values[i] = rank * rounds + i;
              }
              buffer.copyFrom(values);
              for (int i = 0; i < rounds; i++) {
                // Each rank deals differently; count says which one it is.
                Stream stream = (i >> rank & 1) == 0 ? a : b;
                DeviceBuffer element = buffer.slice(4L * i, 4);
                communicator.allReduce(element, element, 1, DataType.INT32, ReduceOp.SUM, stream);
              }
              b.synchronize();
              a.synchronize();
              for (int i = 0; i < rounds; i++) {
                values[i] = 3 * rounds + 3 * i;
              }
              assertArrayEquals(values, buffer.toInts());
            }
          });
    }
  }

  @Test
  void aLaterCollectiveOnAnotherStreamWaitsForAnEarlierOne() {
    try (Ranks ranks = new Ranks(2);
        Ranks gate = new Ranks(2);
        Stream second = ranks.get(0).device().newStream()) {
      hold(gate, ranks.streams.get(0));
      ranks.sum(0, 1);
      ranks.sum(0, 2, second);
      ranks.sum(1, 1);
      ranks.sum(1, 2);
      assertThrows(DeadlineException.class, () -> second.synchronize(SHORT));
      letGo(gate);
      second.synchronize();
      ranks.synchronize();
      gate.synchronize();
    }
  }

  @ParameterizedTest
  @ValueSource(booleans = {true, false})
  void communicatorsInDifferentOrdersDoNotBlockEachOther(boolean oneThread) throws Exception {
    try (Ranks a = new Ranks(3);
        Ranks b = new Ranks(3);
        Ranks c = new Ranks(3)) {
      List<Ranks> all = List.of(a, b, c);
      for (Ranks ranks : all) {
        for (int rank = 0; rank < 3; rank++) {
          ranks.put(rank, rank + 1);
        }
      }
      Communicators.RankTask task =
          communicator -> {
            int rank = communicator.rank();
            for (int round = 0; round < 50; round++) {
              for (int k = 0; k < 3; k++) {
                all.get((k + rank + round) % 3).sum(rank, 1 + round * 600);
              }
            }
          };
      if (oneThread) {
        for (Communicator communicator : a.communicators) {
          task.run(communicator);
        }
        all.forEach(Ranks::synchronize);
      } else {
        a.communicators.run(
            communicator -> {
              task.run(communicator);
              for (int k = 0; k < 3; k++) {
                all.get((k + communicator.rank()) % 3)
                    .streams
                    .get(communicator.rank())
                    .synchronize();
              }
            });
      }
      for (Ranks ranks : all) {
        assertEquals(6, ranks.got(2, 1)[0]);
        ranks.assertUsable();
      }
    }
  }

  @Test
  void aFailedWorkFailsWhatIsQueuedBehindItAndNothingElse() {
    try (Ranks ranks = new Ranks(2);
        Stream other = ranks.get(0).device().newStream()) {
      Stream stream = ranks.streams.get(0);
      DeviceBuffer buffer = ranks.in.get(0).slice(4096, 8);
      buffer.copyFrom(new byte[8]);
      ranks.sum(0, 4);
      stream.fill(buffer, (byte) 1);
      ranks.sum(1, 5);
      assertThrows(MismatchException.class, stream::synchronize);
      assertThrows(NcclException.class, stream::query);
      assertThrows(NcclException.class, () -> stream.fill(buffer, (byte) 2));
      assertThrows(NcclException.class, stream::synchronize);
      // A GPU runs what is queued all the same; only what comes of it is not to be used.
      if (TestBackend.BACKEND == Backend.HOST) {
        assertEquals(0, sum(buffer.toBytes()));
      }
      other.fill(buffer, (byte) 3);
      other.synchronize();
      assertEquals(24, sum(buffer.toBytes()));
      assertEquals(Communicator.State.FAILED, ranks.get(0).state());
      assertInstanceOf(MismatchException.class, ranks.get(0).failure().orElseThrow());
      assertThrows(NcclException.class, () -> ranks.sum(0, 1, other));
      assertThrows(NcclException.class, ranks.streams.get(1)::synchronize);
    }
  }

  @Test
  void aBarrierWaitsForEveryRank() {
    try (Ranks ranks = new Ranks(4)) {
      List<Stream> called = new ArrayList<>();
      for (int rank : new int[] {2, 0, 3, 1}) {
        called.forEach(stream -> assertFalse(stream.query()));
        ranks.get(rank).barrier(ranks.streams.get(rank));
        called.add(ranks.streams.get(rank));
      }
      ranks.synchronize();
      ranks.assertUsable();
    }
  }

  @Test
  void aRankThatLeftIsNamedToThoseWhoNeedIt() {
    try (Ranks ranks = new Ranks(2)) {
      ranks.assertUsable();
      ranks.get(1).close();
      ranks.get(1).close();
      assertEquals(Communicator.State.CLOSED, ranks.get(1).state());
      PeerFailedException e =
          assertThrows(
              PeerFailedException.class,
              () -> {
                ranks.sum(0, 1);
                ranks.streams.get(0).synchronize();
              });
      assertEquals(1, e.rank());
      assertTrue(e.getMessage().contains("rank 1"), e.getMessage());
    }
  }

  @Test
  void abortEndsWhatIsUnfinishedOnAllRanks() {
    try (Ranks ranks = new Ranks(3)) {
      for (int rank = 0; rank < 2; rank++) {
        ranks.sum(rank, 1000);
      }
      assertThrows(DeadlineException.class, () -> ranks.streams.get(0).synchronize(SHORT));
      ranks.get(2).abort();
      ranks.get(2).abort();
      for (int rank = 0; rank < 2; rank++) {
        Stream stream = ranks.streams.get(rank);
        assertThrows(AbortedException.class, stream::synchronize);
        assertEquals(Communicator.State.ABORTED, ranks.get(rank).state());
      }
      assertTrue(ranks.get(2).failure().isPresent());
    }
  }

  @Test
  void anOperationsDeadlineFailsTheCommunicatorAndSaysWhoIsMissing() {
    try (Ranks ranks =
        new Ranks(
            3,
            CommunicatorConfig.builder()
                .operationTimeout(Duration.ofMillis(300))
                .closeTimeout(Duration.ofSeconds(2))
                .build())) {
      ranks.sum(0, 1);
      ranks.sum(2, 1);
      DeadlineException e =
          assertThrows(DeadlineException.class, ranks.streams.get(0)::synchronize);
      assertTrue(e.getMessage().matches("(?is).*rank 1\\b.*"), e.getMessage());
      assertEquals(Communicator.State.FAILED, ranks.get(0).state());
      assertThrows(NcclException.class, ranks.streams.get(2)::synchronize);
    }
  }
}
