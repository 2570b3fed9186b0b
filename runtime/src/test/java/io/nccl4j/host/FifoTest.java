package io.nccl4j.host;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Group;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.schedule.Work;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;

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
        assertEquals(1, ranks.get(rank).collectives().completed());
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
      HostStream first = (HostStream) ranks.streams.get(0);
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
      HostStream first = (HostStream) ranks.streams.get(0);
      Thread submitter =
          Thread.ofPlatform()
              .start(
                  () -> {
                    for (int i = 0; i < 3000; i++) {
                      ranks.sum(0, 1);
                    }
                    first.synchronize();
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
}
