package io.nccl4j.internal.host;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.CommunicatorConfig;
import io.nccl4j.CommunicatorCounters;
import io.nccl4j.DataType;
import io.nccl4j.DeadlineException;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ExecutableGraph;
import io.nccl4j.Graph;
import io.nccl4j.Group;
import io.nccl4j.OperationCounters;
import io.nccl4j.Stream;
import io.nccl4j.internal.operation.Operation;
import io.nccl4j.internal.schedule.Work;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;

/** What a communicator says about its own load. */
@Timeout(value = 60, threadMode = ThreadMode.SEPARATE_THREAD)
class CountersTest {
  private static final int SMALLEST = 4096;
  private static final int WORKS = SMALLEST / Work.BYTES;

  private static CommunicatorCounters counters(HostRanks ranks, int rank) {
    return ranks.get(rank).counters();
  }

  @Test
  void aNewCommunicatorHasDoneNothing() {
    try (HostRanks ranks = new HostRanks(2, 64)) {
      CommunicatorCounters counters = counters(ranks, 0);
      List<OperationCounters> operations = counters.operations();
      assertEquals(
          new CommunicatorCounters(0, 0, 0, 0, 0, 0, 1 << 20, 0, 0, 0, 0, operations), counters);
      assertEquals(Operation.count(), operations.size());
      operations.forEach(
          one -> assertEquals(new OperationCounters(one.operation(), 0, 0, 0, 0, 0, 0), one));
    }
  }

  /** One rank alone cannot complete anything: occupancy is what was put in, and 0 afterwards. */
  @Test
  void countsWhatIsUnfinishedAndForgetsWhatIsComplete() {
    try (HostRanks ranks = new HostRanks(2, 64)) {
      for (int i = 1; i <= 5; i++) {
        ranks.sum(0, 1);
        assertEquals(i, counters(ranks, 0).collectives());
        assertEquals(i, counters(ranks, 0).unfinishedWorks());
        assertEquals((long) i * Work.BYTES, counters(ranks, 0).fifoOccupiedBytes());
      }
      for (int i = 0; i < 5; i++) {
        ranks.sum(1, 1);
      }
      ranks.streams.forEach(Stream::synchronize);
      for (int rank = 0; rank < 2; rank++) {
        CommunicatorCounters after = counters(ranks, rank);
        assertEquals(0, after.unfinishedWorks());
        assertEquals(0, after.fifoOccupiedBytes());
        assertEquals(5, after.collectives());
        assertTrue(after.fifoHighWaterBytes() <= 5 * Work.BYTES, after::toString);
        assertEquals(0, after.fifoFull());
        assertEquals(0, after.fifoWaitNanos());
      }
      assertEquals(5 * Work.BYTES, counters(ranks, 0).fifoHighWaterBytes());
    }
  }

  @Test
  void sendsAndReceivesCountApart() {
    try (HostRanks ranks = new HostRanks(2, 64)) {
      try (Group group = Group.start()) {
        for (int i = 0; i < 3; i++) {
          ranks.get(0).send(ranks.in.get(0), 1, DataType.INT32, 1, ranks.streams.get(0));
          ranks.get(1).recv(ranks.out.get(1), 1, DataType.INT32, 0, ranks.streams.get(1));
        }
        ranks.get(0).recv(ranks.out.get(0), 1, DataType.INT32, 0, ranks.streams.get(0));
        ranks.get(0).send(ranks.in.get(0), 1, DataType.INT32, 0, ranks.streams.get(0));
        // Room is taken, but nothing is submitted before the launch.
        assertEquals(0, counters(ranks, 0).sends());
        assertEquals(5, counters(ranks, 0).unfinishedWorks());
        group.launch();
      }
      ranks.streams.forEach(Stream::synchronize);
      assertEquals(4, counters(ranks, 0).sends());
      assertEquals(1, counters(ranks, 0).receives());
      assertEquals(0, counters(ranks, 1).sends());
      assertEquals(3, counters(ranks, 1).receives());
      assertEquals(0, counters(ranks, 0).collectives());
      assertEquals(0, counters(ranks, 0).unfinishedWorks());
    }
  }

  @Test
  void aDiscardedGroupLeavesNothing() {
    try (HostRanks ranks = new HostRanks(2, 64)) {
      Group group = Group.start();
      ranks.sum(0, 1);
      assertEquals(1, counters(ranks, 0).unfinishedWorks());
      group.close();
      assertEquals(0, counters(ranks, 0).collectives());
      assertEquals(0, counters(ranks, 0).fifoOccupiedBytes());
    }
  }

  @Test
  void graphsAreCountedAtEachLaunchAndTakeNoRoom() {
    int launches = 7;
    try (HostRanks ranks = new HostRanks(2, 64)) {
      Stream stream = ranks.streams.get(0);
      stream.beginCapture();
      ranks.sum(0, 1);
      ranks.sum(0, 1);
      assertEquals(0, counters(ranks, 0).collectives());
      try (Graph graph = stream.endCapture();
          ExecutableGraph executable = graph.instantiate()) {
        for (int i = 0; i < launches; i++) {
          executable.launch(stream);
        }
        CommunicatorCounters waiting = counters(ranks, 0);
        assertEquals(launches, waiting.graphLaunches());
        assertEquals(launches, waiting.unfinishedGraphLaunches());
        assertEquals(2L * launches, waiting.collectives());
        assertEquals(0, waiting.fifoOccupiedBytes());
        for (int i = 0; i < 2 * launches; i++) {
          ranks.sum(1, 1);
        }
        ranks.streams.forEach(Stream::synchronize);
        assertEquals(launches, counters(ranks, 0).graphLaunches());
        assertEquals(0, counters(ranks, 0).unfinishedGraphLaunches());
        assertEquals(0, counters(ranks, 0).fifoHighWaterBytes());
      }
    }
  }

  /** The other rank comes late: the submitter waits for room, and says how long. */
  @Test
  void waitingForRoomIsCounted() throws Exception {
    CommunicatorConfig small = HostRanks.patient().fifoBytes(SMALLEST).build();
    long lateMillis = 50;
    try (HostRanks ranks = new HostRanks(2, 64, small)) {
      ranks.run(
          rank -> {
            if (rank == 1) {
              while (counters(ranks, 0).fifoFull() == 0) {
                Thread.onSpinWait();
              }
              Thread.sleep(lateMillis);
            }
            for (int i = 0; i < 3 * WORKS; i++) {
              ranks.sum(rank, 1);
            }
            ranks.streams.get(rank).synchronize();
          });
      CommunicatorCounters first = counters(ranks, 0);
      assertEquals(SMALLEST, first.fifoBytes());
      assertEquals(SMALLEST, first.fifoHighWaterBytes());
      assertEquals(0, first.fifoOccupiedBytes());
      assertTrue(first.fifoFull() >= 1, first::toString);
      assertTrue(first.fifoWaitNanos() >= lateMillis * 1_000_000, first::toString);
    }
  }

  /** Any thread may ask while others work; every answer is within its bounds. */
  @Test
  void mayBeAskedWhileWorkGoesOn() throws Exception {
    int operations = 50_000;
    AtomicBoolean done = new AtomicBoolean();
    try (HostRanks ranks = new HostRanks(2, 64)) {
      long[] answers = new long[2];
      Thread observer =
          Thread.ofPlatform()
              .start(
                  () -> {
                    long last = 0;
                    while (!done.get()) {
                      CommunicatorCounters now = counters(ranks, 1);
                      boolean right =
                          now.collectives() >= last
                              && now.collectives() <= operations
                              && now.fifoOccupiedBytes() <= now.fifoBytes()
                              && now.fifoHighWaterBytes() <= now.fifoBytes();
                      answers[right ? 0 : 1]++;
                      last = now.collectives();
                      Thread.yield();
                    }
                  });
      try {
        ranks.run(
            rank -> {
              for (int i = 0; i < operations; i++) {
                ranks.sum(rank, 1);
              }
              ranks.streams.get(rank).synchronize();
            });
      } finally {
        done.set(true);
        observer.join();
      }
      assertTrue(answers[0] > 0);
      assertEquals(0, answers[1]);
      assertEquals(operations, counters(ranks, 1).collectives());
      assertEquals(0, counters(ranks, 1).fifoOccupiedBytes());
    }
  }

  @Test
  void aDeadlineSaysHowFullTheFifoIsAndWhatIsOldest() {
    CommunicatorConfig hasty =
        HostRanks.patient().operationTimeout(Duration.ofMillis(200)).name("late").build();
    try (HostRanks ranks = new HostRanks(2, 64, hasty)) {
      DeviceBuffer out = ranks.out.get(0);
      Stream other = ranks.get(0).device().newStream();
      ranks.get(0).recv(out, 7, DataType.INT32, 1, ranks.streams.get(0));
      ranks.sum(0, 3, other);
      ranks.sum(0, 3, other);
      DeadlineException e = assertThrows(DeadlineException.class, other::synchronize);
      assertTrue(
          e.getMessage()
              .contains(
                  "; 384 of 1048576 bytes of this rank's work FIFO are taken, 3 of 8192 works are"
                      + " unfinished, the oldest is recv"),
          e.getMessage());
      other.close();
    }
  }
}
