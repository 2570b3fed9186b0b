package io.nccl4j.internal.host;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.AbortedException;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.DeadlineException;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ExecutableGraph;
import io.nccl4j.Graph;
import io.nccl4j.Group;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.MismatchException;
import io.nccl4j.NcclException;
import io.nccl4j.PeerFailedException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.internal.schedule.Work;
import io.nccl4j.internal.schedule.WorkFifo;
import java.time.Duration;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.Set;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** The bounds of the work FIFO and of the stream's ring: reached, waited for, given back. */
@Timeout(value = 60, threadMode = ThreadMode.SEPARATE_THREAD)
class FifoTest {
  private static final int SMALLEST = 4096;
  private static final int WORKS = SMALLEST / Work.BYTES;
  private static final CommunicatorConfig SMALL = HostRanks.patient().fifoBytes(SMALLEST).build();

  private static int used(HostCommunicator communicator) {
    int used = 0;
    for (int i = 0; i < communicator.fifo().capacity(); i++) {
      used += communicator.fifo().at(i).isInUse() ? 1 : 0;
    }
    return used;
  }

  private static void assertAllCreditBack(HostRanks ranks) {
    for (int rank = 0; rank < ranks.size(); rank++) {
      assertEquals(0, used(ranks.get(rank)), "rank " + rank);
    }
  }

  /**
   * Each operation adds to the result of the one before; submission waits for room again and again.
   */
  @Test
  void thousandsOfOperationsThroughTheSmallestFifo() throws Exception {
    int operations = 20_000;
    try (HostRanks ranks = new HostRanks(2, 64, SMALL)) {
      assertEquals(WORKS, ranks.get(0).fifo().capacity());
      ranks.in.forEach(buffer -> buffer.copyFrom(new int[] {1}));
      ranks.run(
          rank -> {
            DeviceBuffer in = ranks.in.get(rank);
            Stream stream = ranks.streams.get(rank);
            for (int i = 0; i < operations; i++) {
              ranks.get(rank).allReduce(in, in, 1, DataType.INT32, ReduceOp.SUM, stream);
              if (i % 20 == 19) {
                stream.fill(in, (byte) 1);
              }
            }
            stream.synchronize();
          });
      for (DeviceBuffer in : ranks.in) {
        assertArrayEquals(new int[] {0x01010101}, new int[] {in.toInts()[0]});
      }
      assertAllCreditBack(ranks);
    }
  }

  /** One thread for all ranks: waiting for room on one rank must drive the others. */
  @Test
  void oneThreadFillsTheFifosOfAllRanks() {
    try (HostRanks ranks = new HostRanks(4, 64, SMALL)) {
      ranks.in.forEach(buffer -> buffer.copyFrom(new int[] {1}));
      for (int i = 0; i < 5000; i++) {
        for (int rank = 0; rank < 4; rank++) {
          ranks.sum(rank, 1);
        }
      }
      ranks.streams.forEach(Stream::synchronize);
      assertEquals(4, ranks.out.get(3).toInts()[0]);
      assertAllCreditBack(ranks);
    }
  }

  /** Works of several streams complete in no order; the ticker takes part. */
  @Test
  void severalStreamsShareTheSmallestFifo() {
    int streams = 5;
    try (HostRanks ranks = new HostRanks(2, 64, SMALL)) {
      Stream[][] all = new Stream[2][streams];
      for (int rank = 0; rank < 2; rank++) {
        for (int s = 0; s < streams; s++) {
          all[rank][s] = ranks.get(rank).device().newStream();
        }
      }
      for (int i = 0; i < 20_000; i++) {
        for (int rank = 0; rank < 2; rank++) {
          Stream stream = all[rank][i * 7 % streams];
          if (i % 3 == 0) {
            int from = i / 3 % 2;
            if (rank == from) {
              ranks.get(rank).send(ranks.in.get(rank), 3, DataType.INT32, 1 - from, stream);
            } else {
              ranks.get(rank).recv(ranks.out.get(rank), 3, DataType.INT32, from, stream);
            }
          } else {
            ranks.sum(rank, 3, stream);
          }
        }
      }
      for (Stream[] ofRank : all) {
        for (Stream stream : ofRank) {
          stream.synchronize();
          stream.close();
        }
      }
      assertAllCreditBack(ranks);
    }
  }

  @Test
  void aGroupLargerThanHalfIsRefusedAndLeavesNothing() {
    try (HostRanks ranks = new HostRanks(2, 64, SMALL)) {
      for (int round = 0; round < 100; round++) {
        Group tooLarge = Group.start();
        for (int i = 0; i < WORKS / 2; i++) {
          ranks.sum(0, 1);
          ranks.sum(1, 1);
        }
        InvalidUsageException e = assertThrows(InvalidUsageException.class, () -> ranks.sum(0, 1));
        assertTrue(e.getMessage().contains("fifo-bytes"), e.getMessage());
        tooLarge.close();
        assertAllCreditBack(ranks);
      }
      try (Group group = Group.start()) {
        for (int i = 0; i < WORKS / 2; i++) {
          ranks.sum(0, 1);
          ranks.sum(1, 1);
        }
        group.launch();
      }
      ranks.streams.forEach(Stream::synchronize);
      assertAllCreditBack(ranks);
    }
  }

  @Test
  void discardedGroupsGiveTheirCreditBack() {
    try (HostRanks ranks = new HostRanks(3, 64, SMALL)) {
      for (int i = 0; i < 100_000; i++) {
        Group outer = Group.start();
        ranks.sum(i % 3, 1);
        Group inner = Group.start();
        ranks.sum(0, 1);
        ranks.sum(2, 1);
        if (i % 2 == 0) {
          inner.launch();
        }
        inner.close();
        if (i % 3 == 0) {
          assertThrows(
              IllegalStateException.class,
              () ->
                  Group.run(
                      () -> {
                        ranks.sum(1, 1);
                        throw new IllegalStateException("of the caller");
                      }));
        }
        assertTrue(used(ranks.get(i % 3)) > 0);
        outer.close();
        if (i % 100 == 0) {
          assertAllCreditBack(ranks);
        }
      }
      assertAllCreditBack(ranks);
      for (int rank = 0; rank < 3; rank++) {
        ranks.sum(rank, 1);
      }
      ranks.streams.forEach(Stream::synchronize);
      for (int rank = 0; rank < 3; rank++) {
        // Discarded works took no sequence number.
        assertEquals(1, ranks.get(rank).own().collectives().completed());
      }
    }
  }

  /** A group that is put together while the rest of the FIFO is full waits for room by driving. */
  @Test
  void aGroupWaitsForRoomBehindOtherWork() {
    try (HostRanks ranks = new HostRanks(2, 64, SMALL)) {
      ranks.in.forEach(buffer -> buffer.copyFrom(new int[] {1}));
      for (int i = 0; i < WORKS; i++) {
        ranks.sum(0, 1);
        ranks.sum(1, 1);
      }
      try (Group group = Group.start()) {
        for (int i = 0; i < WORKS / 2; i++) {
          ranks.sum(0, 1);
          ranks.sum(1, 1);
        }
        group.launch();
      }
      ranks.streams.forEach(Stream::synchronize);
      assertEquals(2, ranks.out.get(0).toInts()[0]);
      assertAllCreditBack(ranks);
    }
  }

  /** More tasks than the ring has entries: submitting drives. Fills and copies count like works. */
  @Test
  void aFullStreamDrives() {
    int tasks = 5000;
    try (HostRanks ranks = new HostRanks(2, 64)) {
      ranks.in.forEach(buffer -> buffer.copyFrom(new int[] {1}));
      HostStream first = HostStream.of(ranks.streams.get(0));
      long mostQueued = 0;
      for (int i = 0; i < tasks; i++) {
        for (int rank = 0; rank < 2; rank++) {
          Stream stream = ranks.streams.get(rank);
          if (i % 2 == 0) {
            ranks.sum(rank, 1, stream);
          } else {
            stream.copy(ranks.in.get(rank), ranks.out.get(rank));
          }
        }
        mostQueued = Math.max(mostQueued, first.tail() - first.head());
      }
      assertTrue(mostQueued <= 1024, mostQueued + " entries");
      ranks.streams.forEach(Stream::synchronize);
      // 2^2500 modulo 2^32 is 0: enough to know that every doubling came.
      assertEquals(0, ranks.out.get(1).toInts()[0]);
      assertFalse(first.hasPending());
    }
  }

  /**
   * With the other rank away, the ring fills up, the submitter waits there, and goes on when it
   * comes.
   */
  @Test
  void aFullStreamWaitsForTheOtherRank() throws Exception {
    try (HostRanks ranks = new HostRanks(2, 64)) {
      ranks.in.forEach(buffer -> buffer.copyFrom(new int[] {1}));
      HostStream first = HostStream.of(ranks.streams.get(0));
      Thread submitter =
          Thread.ofPlatform()
              .start(
                  () -> {
                    for (int i = 0; i < 3000; i++) {
                      ranks.sum(0, 1);
                    }
                    ranks.streams.get(0).synchronize();
                  });
      while (first.tail() < 1024 || submitter.getState() != Thread.State.TIMED_WAITING) {
        Thread.onSpinWait();
      }
      assertEquals(1024, first.tail());
      assertTrue(submitter.isAlive());
      for (int i = 0; i < 3000; i++) {
        ranks.sum(1, 1);
      }
      ranks.streams.get(1).synchronize();
      submitter.join();
      assertEquals(2, ranks.out.get(0).toInts()[0]);
    }
  }

  // ---- credit

  /** What becomes of queued operations. */
  enum End {
    COMPLETED,
    CAPTURED,
    ABORTED,
    MISMATCHED,
    PEER_LEFT,
    LATE
  }

  /**
   * Afterwards all places are free, each can be taken once, and no place twice: credit that came
   * back twice would hand one out while it is in use.
   */
  @ParameterizedTest
  @EnumSource
  void creditComesBackExactlyOnce(End end) throws Exception {
    CommunicatorConfig config =
        HostRanks.patient()
            .fifoBytes(SMALLEST)
            .operationTimeout(Duration.ofMillis(end == End.LATE ? 200 : 30_000))
            .build();
    try (HostRanks ranks = new HostRanks(2, 64, config)) {
      for (int i = 0; i < WORKS - 1; i++) {
        submitForBoth(ranks, end);
      }
      switch (end) {
        case ABORTED -> ranks.get(1).abort();
        case MISMATCHED -> {
          ranks.sum(0, 2);
          ranks.sum(1, 3);
        }
        case PEER_LEFT -> ranks.get(1).close();
        default -> {}
      }
      Stream first = ranks.streams.get(0);
      if (end == End.COMPLETED || end == End.CAPTURED) {
        first.synchronize();
      } else {
        assertThrows(NcclException.class, first::synchronize);
      }
      if (end == End.MISMATCHED) {
        assertThrows(MismatchException.class, ranks.streams.get(1)::synchronize);
      } else {
        ranks.streams.get(1).synchronize();
      }
      assertAllCreditBack(ranks);
      for (int rank = 0; rank < 2; rank++) {
        WorkFifo<HostWork> fifo = ranks.get(rank).fifo();
        assertEquals(0, fifo.takenBytes());
        Set<HostWork> taken = Collections.newSetFromMap(new IdentityHashMap<>());
        for (int i = 0; i < WORKS; i++) {
          assertTrue(fifo.hasRoom());
          assertTrue(taken.add(fifo.take()), "a place was given twice");
        }
        assertFalse(fifo.hasRoom());
        taken.forEach(Work::free);
      }
    }
  }

  /** Operations that complete only where they are meant to. */
  private static void submitForBoth(HostRanks ranks, End end) {
    if (end == End.CAPTURED) {
      for (int rank = 0; rank < 2; rank++) {
        Stream stream = ranks.streams.get(rank);
        stream.beginCapture();
        ranks.sum(rank, 1);
        try (Graph graph = stream.endCapture();
            ExecutableGraph executable = graph.instantiate()) {
          if (rank == 1) {
            executable.launch(stream);
          } else {
            // The other rank calls it plainly.
            ranks.sum(rank, 1);
          }
        }
      }
      return;
    }
    ranks.sum(0, 1);
    if (end == End.COMPLETED || end == End.MISMATCHED) {
      ranks.sum(1, 1);
    }
  }

  /** Room is counted in single places: no threshold keeps the last ones back. */
  @Test
  void theRecordingThresholdIsOnePlaceSoThatHalfAlwaysFits() {
    try (HostRanks ranks = new HostRanks(2, 64, SMALL)) {
      for (int completed = 0; completed < WORKS / 2; completed++) {
        for (int i = 0; i < WORKS; i++) {
          ranks.sum(0, 1);
        }
        for (int i = 0; i < WORKS / 2 + completed; i++) {
          ranks.sum(1, 1);
        }
        ranks.streams.get(1).synchronize();
        assertFalse(ranks.streams.get(0).query());
        long full = ranks.get(0).counters().fifoFull();
        Group.run(
            () -> {
              for (int i = 0; i < WORKS / 2; i++) {
                ranks.sum(0, 1);
              }
            });
        assertEquals(full, ranks.get(0).counters().fifoFull(), "half did not fit");
        for (int i = completed; i < WORKS; i++) {
          ranks.sum(1, 1);
        }
        ranks.streams.forEach(Stream::synchronize);
      }
      assertAllCreditBack(ranks);
    }
  }

  // ---- plans

  @Test
  void aPointToPointGroupIsWholeOrRefused() {
    try (HostRanks ranks = new HostRanks(2, 64, SMALL)) {
      Stream stream = ranks.streams.get(0);
      Group group = Group.start();
      for (int i = 0; i < WORKS / 4; i++) {
        ranks.get(0).send(ranks.in.get(0), 1, DataType.INT32, 1, stream);
        ranks.get(0).recv(ranks.out.get(0), 1, DataType.INT32, 1, stream);
      }
      assertThrows(
          InvalidUsageException.class,
          () -> ranks.get(0).send(ranks.in.get(0), 1, DataType.INT32, 1, stream));
      group.close();
      assertFalse(HostStream.of(stream).hasPending());
      assertEquals(0, ranks.get(0).counters().sends());
      ranks.in.get(1).copyFrom(new int[] {9});
      Group.run(
          () -> {
            for (int i = 0; i < WORKS / 4; i++) {
              for (int rank = 0; rank < 2; rank++) {
                Stream own = ranks.streams.get(rank);
                ranks.get(rank).send(ranks.in.get(rank), 1, DataType.INT32, 1 - rank, own);
                ranks.get(rank).recv(ranks.out.get(rank), 1, DataType.INT32, 1 - rank, own);
              }
            }
          });
      // One entry for all of it.
      assertTrue(HostStream.of(stream).tail() - HostStream.of(stream).head() <= 1);
      ranks.streams.forEach(Stream::synchronize);
      assertEquals(9, ranks.out.get(0).toInts()[0]);
      assertAllCreditBack(ranks);
    }
  }

  /** The second rank cannot take part: nothing of the first one is numbered, queued or kept. */
  @Test
  void aGroupTakesRoomOnAllRanksBeforeItPublishesAnything() {
    try (HostRanks ranks = new HostRanks(2, 64, SMALL);
        HostRanks others = new HostRanks(2, 64, SMALL)) {
      Group group = Group.start();
      ranks.sum(0, 1);
      others.sum(0, 1);
      assertEquals(1, used(ranks.get(0)));
      assertEquals(1, used(others.get(0)));
      assertFalse(HostStream.of(ranks.streams.get(0)).hasPending());
      assertEquals(0, ranks.get(0).counters().collectives());
      others.get(0).abort();
      assertThrows(AbortedException.class, group::launch);
      assertFalse(HostStream.of(ranks.streams.get(0)).hasPending());
      assertEquals(0, ranks.get(0).counters().collectives());
      assertAllCreditBack(ranks);
      assertAllCreditBack(others);
    }
  }

  // ---- waiting for room

  /** The other rank does not come: the call that finds no room ends, and says what is oldest. */
  @Test
  void waitingForRoomHasADeadlineAndNamesTheOldestWork() {
    CommunicatorConfig hasty =
        HostRanks.patient().fifoBytes(SMALLEST).operationTimeout(Duration.ofMillis(200)).build();
    try (HostRanks ranks = new HostRanks(2, 64, hasty)) {
      ranks.sum(0, 2);
      for (int i = 1; i < WORKS; i++) {
        ranks.sum(0, 1);
      }
      DeadlineException e = assertThrows(DeadlineException.class, () -> ranks.sum(0, 1));
      for (String part :
          new String[] {
            "4096 of 4096 bytes",
            "32 of 32 works",
            "the oldest is allReduce(2 int32, sum) #1",
            "rank 1 (it has called no collective yet)"
          }) {
        assertTrue(e.getMessage().contains(part), e.getMessage());
      }
      assertThrows(DeadlineException.class, ranks.streams.get(0)::synchronize);
      assertAllCreditBack(ranks);
    }
  }

  @Test
  void waitingForRoomSeesThatThePeerHasLeft() throws Exception {
    try (HostRanks ranks = new HostRanks(2, 64, SMALL)) {
      for (int i = 0; i < WORKS; i++) {
        ranks.sum(0, 1);
      }
      Thread leaver =
          Thread.ofPlatform()
              .start(
                  () -> {
                    while (ranks.get(0).counters().fifoFull() == 0) {
                      Thread.onSpinWait();
                    }
                    ranks.get(1).close();
                  });
      PeerFailedException e = assertThrows(PeerFailedException.class, () -> ranks.sum(0, 1));
      assertEquals(1, e.rank());
      leaver.join();
      assertThrows(PeerFailedException.class, ranks.streams.get(0)::synchronize);
      assertAllCreditBack(ranks);
    }
  }
}
