package io.nccl4j.internal.host;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.DeadlineException;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.MismatchException;
import io.nccl4j.NcclException;
import io.nccl4j.Stream;
import io.nccl4j.memory.MemoryPurpose;
import io.nccl4j.memory.MemoryReport;
import java.time.Duration;
import java.util.Arrays;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** What ranks of two hosts put on the link between them, keep of it, and owe it at their end. */
@Timeout(value = 60, threadMode = ThreadMode.SEPARATE_THREAD)
class RelayedHostsTest {
  private static final int[] TWO_BY_TWO = {0, 0, 1, 1};
  private static final int[] TWO = {0, 1};
  private static final Duration PATIENT = Duration.ofSeconds(30);

  /** Of one lane with one peer, as documented. */
  private static final long LANE_BYTES = 133 << 10;

  private static CommunicatorConfig config(Duration operations) {
    return CommunicatorConfig.builder()
        .initTimeout(PATIENT)
        .operationTimeout(operations)
        .closeTimeout(PATIENT)
        .build();
  }

  // ---- idle

  @Test
  void whoDoesNothingSendsNothing() throws Exception {
    staysSilent(1);
  }

  @Test
  @Tag("long")
  void whoDoesNothingSendsNothingForLong() throws Exception {
    staysSilent(10);
  }

  private static void staysSilent(int seconds) throws Exception {
    try (RelayedRanks ranks = new RelayedRanks(config(PATIENT), 1 << 20, TWO_BY_TWO)) {
      for (int count : new int[] {1, 1 << 20}) {
        for (int rank = 0; rank < ranks.size(); rank++) {
          ranks.sum(rank, count);
        }
        ranks.streams.forEach(Stream::synchronize);
      }
      long carried = settled(ranks);
      assertTrue(carried > 1 << 20, carried + " bytes of the sums");
      LockSupport.parkNanos(TimeUnit.SECONDS.toNanos(seconds));
      assertEquals(carried, ranks.relay.carried());
    }
  }

  /** What the relay has carried when the last of it has passed: nothing for a tenth of a second. */
  private static long settled(RelayedRanks ranks) {
    while (true) {
      long before = ranks.relay.carried();
      LockSupport.parkNanos(100_000_000);
      if (ranks.relay.carried() == before) {
        return before;
      }
    }
  }

  // ---- a contradiction

  /**
   * Where it began can't be asked of a rank that is stopped: what is known is said all the same.
   */
  @Test
  void whoContradictsAndGoesSilentIsNamedSoon() throws Exception {
    try (RelayedRanks ranks = new RelayedRanks(config(PATIENT), 1000, TWO)) {
      ranks.sum(0, 1);
      ranks.sum(1, 1);
      ranks.streams.forEach(Stream::synchronize);
      long before = settled(ranks);
      ranks.sum(1, 300);
      CompletableFuture<Void> other =
          CompletableFuture.runAsync(
              ranks.streams.get(1)::synchronize,
              task -> Thread.ofPlatform().name("contradicting").start(task));
      while (ranks.relay.carried() == before) {
        LockSupport.parkNanos(1_000_000);
      }
      long ignored = settled(ranks);
      ranks.relay.stall();
      ranks.sum(0, 200);
      long start = System.nanoTime();
      MismatchException thrown =
          assertThrows(MismatchException.class, ranks.streams.get(0)::synchronize);
      long millis = (System.nanoTime() - start) / 1_000_000;
      assertTrue(millis < 5000, millis + " ms");
      for (String word : new String[] {"#2", "200 ", "300 ", "does not answer"}) {
        assertTrue(thrown.getMessage().contains(word), thrown.getMessage());
      }
      ranks.relay.goOn();
      Throwable cause = assertThrows(ExecutionException.class, other::get).getCause();
      assertInstanceOf(MismatchException.class, cause);
    }
  }

  // ---- a slow receiver

  private static long networkBytes(RelayedRanks ranks, int rank) {
    return MemoryReport.of(ranks.get(rank)).bytes(MemoryPurpose.NETWORK);
  }

  /** Queues a message whose ints say which one it is. */
  private static void send(RelayedRanks ranks, DeviceBuffer from, int count) {
    ranks.get(0).send(from, count, DataType.INT32, 1, ranks.streams.get(0));
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 1000, 4000, 16_000, 100_000})
  void aSenderWaitsForASlowReceiver(int count) throws Exception {
    int messages = 200;
    try (RelayedRanks ranks = new RelayedRanks(config(PATIENT), count, TWO);
        DeviceBuffer from = ranks.get(0).device().allocate(DataType.INT32, count)) {
      long[] before = {networkBytes(ranks, 0), networkBytes(ranks, 1)};
      long joined = settled(ranks);
      CompletableFuture<Void> sender =
          CompletableFuture.runAsync(
              () -> {
                for (int i = 0; i < messages; i++) {
                  from.copyFrom(filled(count, i));
                  send(ranks, from, count);
                  ranks.streams.get(0).synchronize();
                }
              },
              task -> Thread.ofPlatform().name("sender").start(task));
      while (ranks.relay.carried() == joined) {
        LockSupport.parkNanos(1_000_000);
      }
      long carried = settled(ranks);
      assertTrue(!sender.isDone(), "the sender waits for nobody");
      assertTrue(carried < 2 * LANE_BYTES, carried + " bytes were sent");
      for (int rank = 0; rank < 2; rank++) {
        long more = networkBytes(ranks, rank) - before[rank];
        assertTrue(more > 0 && more <= LANE_BYTES, "rank " + rank + " took " + more + " bytes");
      }
      int[] got = new int[count];
      for (int i = 0; i < messages; i++) {
        ranks.get(1).recv(ranks.buffers.get(1), count, DataType.INT32, 0, ranks.streams.get(1));
        ranks.streams.get(1).synchronize();
        ranks.buffers.get(1).copyTo(got);
        assertEquals(i, got[0]);
        assertEquals(i, got[count - 1]);
      }
      sender.join();
      assertTrue(networkBytes(ranks, 1) - before[1] <= LANE_BYTES);
    }
  }

  private static int[] filled(int count, int value) {
    int[] values = new int[count];
    Arrays.fill(values, value);
    return values;
  }

  @Test
  void aSenderGivesUpAtItsDeadline() throws Exception {
    int count = 4000;
    Duration deadline = Duration.ofMillis(400);
    try (RelayedRanks ranks = new RelayedRanks(config(deadline), count, TWO)) {
      NcclException e =
          assertThrows(
              NcclException.class,
              () -> {
                while (true) {
                  send(ranks, ranks.buffers.get(0), count);
                  ranks.streams.get(0).synchronize();
                }
              });
      assertInstanceOf(DeadlineException.class, e, e::toString);
      assertTrue(e.getMessage().contains("rank 1 to call recv"), e::toString);
    }
  }

  // ---- the end of a failed rank's port

  /** The peer takes no more in the middle of a message, so that the rest of it cannot leave. */
  @Test
  void aFailedRankKeepsItsPortForAShortTime() throws Exception {
    int count = 16 << 20;
    long keptMillis = 200;
    try (RelayedRanks ranks = new RelayedRanks(config(PATIENT), count, TWO)) {
      send(ranks, ranks.buffers.get(0), count);
      ranks.get(1).recv(ranks.buffers.get(1), count, DataType.INT32, 0, ranks.streams.get(1));
      while (ranks.relay.carried() < 1 << 20) {
        Thread.onSpinWait();
      }
      ranks.relay.stall();
      long start = System.nanoTime();
      // Whoever drives works meets the failure, and gives the buffers back with the port.
      ranks.get(0).abort();
      assertThrows(NcclException.class, () -> ranks.streams.get(0).synchronize());
      ranks.streams.get(0).close();
      while (ranks.network.openPorts() == 2) {
        Thread.onSpinWait();
      }
      double millis = (System.nanoTime() - start) / 1e6;
      assertTrue(millis >= keptMillis, "closed after " + millis + " ms: all had left");
      assertTrue(millis < 5 * keptMillis, "closed after " + millis + " ms");
      ranks.get(1).abort();
    }
  }
}
