package io.nccl4j.internal.host;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.AbortedException;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.CommunicatorCounters;
import io.nccl4j.DataType;
import io.nccl4j.DeadlineException;
import io.nccl4j.ExecutableGraph;
import io.nccl4j.Graph;
import io.nccl4j.NcclException;
import io.nccl4j.PeerFailedException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.internal.operation.Operation;
import io.nccl4j.internal.schedule.Work;
import io.nccl4j.internal.spi.EngineStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * What a program meets if room in the work FIFO is never given back: not an endless wait, but an
 * explanation. The fault is this test's own.
 */
@Timeout(value = 60, threadMode = ThreadMode.SEPARATE_THREAD)
class LostCreditTest {
  private static final int SMALLEST = 4096;
  private static final int WORKS = SMALLEST / Work.BYTES;
  private static final int LARGE = 100_000;
  private static final int SMALL = 49_000;
  private static final Duration DEADLINE = Duration.ofMillis(500);

  /**
   * Operations before room is missing: two plain ones, a captured one, and a FIFO less its place.
   */
  private static final int FIT = 3 + WORKS - 1;

  private static CommunicatorConfig config() {
    return HostRanks.patient().fifoBytes(SMALLEST).operationTimeout(DEADLINE).name("leaky").build();
  }

  /**
   * A graph whose work takes a place of the work FIFO, as a plain one does, and never gives it
   * back: the fault that captured operations have in other libraries.
   */
  private static final class LeakyGraph implements ExecutableGraph {
    private final HostCommunicator communicator;
    private final ExecutableGraph graph;
    private final List<HostWork> lost = new ArrayList<>();

    LeakyGraph(HostCommunicator communicator, ExecutableGraph graph) {
      this.communicator = communicator;
      this.graph = graph;
    }

    @Override
    public void launch(Stream stream) {
      HostWork place = communicator.fifo().take();
      place.reset();
      place.operation = Operation.ALL_REDUCE;
      place.type = DataType.BFLOAT16;
      place.op = ReduceOp.SUM;
      place.count = LARGE;
      place.encode();
      place.seq = communicator.counters().collectives() + 1;
      place.stream = (EngineStream) stream;
      lost.add(place);
      graph.launch(stream);
    }

    @Override
    public void update(Graph by) {
      graph.update(by);
    }

    /** Ends the fault, too, so that the communicator can be closed. */
    @Override
    public void close() {
      graph.close();
      lost.forEach(Work::free);
    }
  }

  private static void sum(HostRanks ranks, int rank, int count) {
    ranks
        .get(rank)
        .allReduce(
            ranks.in.get(rank),
            ranks.out.get(rank),
            count,
            DataType.BFLOAT16,
            ReduceOp.SUM,
            ranks.streams.get(rank));
  }

  private static ExecutableGraph captured(HostRanks ranks, int rank, boolean leaky) {
    Stream stream = ranks.streams.get(rank);
    stream.beginCapture();
    sum(ranks, rank, LARGE);
    try (Graph graph = stream.endCapture()) {
      ExecutableGraph executable = graph.instantiate();
      return leaky ? new LeakyGraph(ranks.get(rank), executable) : executable;
    }
  }

  /** The published sequence; returns what ended it, null if nothing did. */
  private static @Nullable NcclException leak(HostRanks ranks, int rank, boolean leaky, int most) {
    Stream stream = ranks.streams.get(rank);
    sum(ranks, rank, LARGE);
    sum(ranks, rank, LARGE);
    try (ExecutableGraph graph = captured(ranks, rank, leaky)) {
      graph.launch(stream);
      for (int i = 0; i < most; i++) {
        sum(ranks, rank, SMALL);
        stream.synchronize();
      }
    } catch (NcclException e) {
      return e;
    }
    return null;
  }

  private static void assertSays(@Nullable NcclException e, String... parts) {
    assertNotNull(e);
    for (String part : parts) {
      assertTrue(e.getMessage().contains(part), "'" + part + "' is not in: " + e.getMessage());
    }
  }

  /**
   * Two plain sums of 100,000 bfloat16, one captured, then plain ones of 49,000, each waited for.
   * One of the ranks says it all; the other one says the same, or that this one gave up.
   */
  @Test
  void aGraphThatKeepsItsRoomEndsWithAnExplanation() throws Exception {
    long start = System.nanoTime();
    NcclException[] ends = new NcclException[2];
    CommunicatorCounters full;
    try (HostRanks ranks = new HostRanks(2, 2L * LARGE, config())) {
      ranks.run(rank -> ends[rank] = leak(ranks, rank, true, 10_000));
      full = ranks.get(0).counters();
    }
    double seconds = (System.nanoTime() - start) / 1e9;
    int first = ends[0] instanceof DeadlineException ? 0 : 1;
    assertNotNull(ends[first], "nothing ended the sequence");
    assertInstanceOf(DeadlineException.class, ends[first]);
    assertTrue(seconds < 10, seconds + " s");
    assertSays(
        ends[first],
        "rank " + first + " of communicator leaky found no room in its work FIFO for 500 ms",
        "to submit what follows collective #" + FIT,
        "4096 of 4096 bytes of this rank's work FIFO are taken, 1 of 32 works are unfinished",
        "the oldest is allReduce(100000 bfloat16, sum) #3 of communicator leaky, which is in no"
            + " stream",
        "not arrived at collective #" + (FIT + 1) + ": rank " + (1 - first),
        "its last collective is #" + FIT + ": allReduce(49000 bfloat16, sum)",
        "operation-timeout");
    if (ends[1 - first] instanceof PeerFailedException e) {
      assertSays(e, "rank " + first, "gave up");
    } else {
      assertInstanceOf(DeadlineException.class, ends[1 - first]);
    }
    assertEquals(SMALLEST, full.fifoHighWaterBytes());
    assertEquals(1, full.fifoFull());
    assertTrue(full.fifoWaitNanos() >= DEADLINE.toNanos() / 2, full::toString);
  }

  /** The other rank waits in the operation for which this one has no room. */
  @Test
  void theRankWithoutRoomIsTheOneThatIsMissing() throws Exception {
    NcclException[] ends = new NcclException[2];
    try (HostRanks ranks = new HostRanks(2, 2L * LARGE, config())) {
      ranks.run(rank -> ends[rank] = leak(ranks, rank, rank == 1, 10_000));
    }
    if (ends[1] instanceof DeadlineException) {
      assertSays(
          ends[1],
          "rank 1 of communicator leaky found no room",
          "all other ranks have called collective #" + (FIT + 1));
    } else {
      assertSays(ends[1], "rank 0", "gave up");
    }
    if (ends[0] instanceof DeadlineException) {
      assertSays(
          ends[0],
          "allReduce(49000 bfloat16, sum) #" + (FIT + 1),
          "waiting for rank 1 (its last collective is #" + FIT);
    } else {
      assertSays(ends[0], "rank 1", "gave up");
    }
    assertTrue(ends[0] instanceof DeadlineException || ends[1] instanceof DeadlineException);
  }

  /** Without the fault the same program runs on: it is the lost place that ends the other one. */
  @Test
  void withoutTheFaultTheSameSequenceGoesOn() throws Exception {
    try (HostRanks ranks = new HostRanks(2, 2L * LARGE, config())) {
      ranks.run(
          rank -> {
            assertNull(leak(ranks, rank, false, 10 * WORKS));
            assertEquals(0, ranks.get(rank).counters().fifoOccupiedBytes());
          });
      assertEquals(3 + 10L * WORKS, ranks.get(0).counters().collectives());
    }
  }

  /** Room that will never come is waited for only until the communicator fails. */
  @ParameterizedTest
  @ValueSource(booleans = {false, true})
  void anAbortOfAnyRankEndsTheWaitForRoom(boolean own) throws Exception {
    CommunicatorConfig config = HostRanks.patient().fifoBytes(SMALLEST).build();
    try (HostRanks ranks = new HostRanks(2, 2L * LARGE, config)) {
      ranks.run(
          rank -> {
            if (rank == 0) {
              NcclException end = leak(ranks, 0, true, 10_000);
              assertInstanceOf(AbortedException.class, end, String.valueOf(end));
              return;
            }
            // As many operations as rank 0 can submit, so that it waits for nothing but room.
            for (int i = 0; i < FIT; i++) {
              sum(ranks, 1, i < 3 ? LARGE : SMALL);
            }
            ranks.streams.get(1).synchronize();
            while (ranks.get(0).counters().fifoFull() == 0) {
              Thread.onSpinWait();
            }
            assertEquals(SMALLEST, ranks.get(0).counters().fifoOccupiedBytes());
            assertEquals(1, ranks.get(0).counters().unfinishedWorks());
            ranks.get(own ? 0 : 1).abort();
          });
    }
  }
}
