package io.nccl4j.conformance;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Communicators;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.PeerFailedException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.time.Duration;
import java.util.Map;
import java.util.function.Function;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Communicators made of communicators. */
@Timeout(value = 60, threadMode = ThreadMode.SEPARATE_THREAD)
class SplitTest {
  /** The sum of a number over a communicator. */
  private static int sum(Communicator communicator, Stream stream, int number) {
    try (DeviceBuffer buffer = communicator.device().allocate(4)) {
      buffer.copyFrom(new int[] {number});
      communicator.allReduce(buffer, buffer, 1, DataType.INT32, ReduceOp.SUM, stream);
      stream.synchronize();
      return buffer.toInts()[0];
    }
  }

  /** Root 0's number. */
  private static int first(Communicator communicator, Stream stream, int number) {
    try (DeviceBuffer buffer = communicator.device().allocate(4)) {
      buffer.copyFrom(new int[] {number});
      communicator.broadcast(buffer, buffer, 1, DataType.INT32, 0, stream);
      stream.synchronize();
      return buffer.toInts()[0];
    }
  }

  private static void run(int nranks, Communicators.RankTask task) throws Exception {
    try (Communicators all = TestBackend.communicators(nranks)) {
      all.run(task);
    }
  }

  @Test
  void colorsDivideAndKeysOrder() throws Exception {
    run(
        5,
        communicator -> {
          int rank = communicator.rank();
          try (Stream stream = communicator.device().newStream();
              Communicator child = communicator.split(rank % 2, -rank)) {
            assertNotNull(child);
            int size = rank % 2 == 0 ? 3 : 2;
            assertEquals(size, child.nranks());
            assertEquals(size - 1 - rank / 2, child.rank());
            assertEquals(communicator.device(), child.device());
            assertEquals(rank % 2 == 0 ? 0 + 2 + 4 : 1 + 3, sum(child, stream, rank));
            assertEquals(rank % 2 == 0 ? 4 : 3, first(child, stream, rank));
            assertEquals(10, sum(communicator, stream, rank));
            for (int i = 0; i < 20; i++) {
              assertEquals(size, sum(child, stream, 1));
              assertEquals(5, sum(communicator, stream, 1));
            }
          }
        });
  }

  @Test
  void equalKeysKeepTheOldOrder() throws Exception {
    run(
        4,
        communicator -> {
          int rank = communicator.rank();
          try (Stream stream = communicator.device().newStream();
              Communicator child = communicator.split(7, rank == 3 ? 0 : 1)) {
            assertNotNull(child);
            assertEquals((rank + 1) % 4, child.rank());
            assertEquals(3, first(child, stream, rank));
          }
        });
  }

  @Test
  void aRankMayStayOut() throws Exception {
    run(
        3,
        communicator -> {
          int rank = communicator.rank();
          int color = rank == 1 ? Communicator.NO_COLOR : 0;
          try (Stream stream = communicator.device().newStream();
              Communicator child = communicator.split(color, rank)) {
            if (rank == 1) {
              assertNull(child);
            } else {
              assertNotNull(child);
              assertEquals(2, child.nranks());
              assertEquals(2, sum(child, stream, rank));
            }
            assertEquals(3, sum(communicator, stream, rank));
          }
        });
  }

  @Test
  void allMayStayOut() throws Exception {
    run(
        2,
        communicator -> {
          assertNull(communicator.split(Communicator.NO_COLOR, 0));
          try (Stream stream = communicator.device().newStream()) {
            assertEquals(1, sum(communicator, stream, communicator.rank()));
          }
        });
  }

  @Test
  void aRankMayBeAlone() throws Exception {
    run(
        3,
        communicator -> {
          try (Stream stream = communicator.device().newStream();
              Communicator child = communicator.split(communicator.rank(), 0)) {
            assertNotNull(child);
            assertEquals(1, child.nranks());
            assertEquals(0, child.rank());
            assertEquals(communicator.rank(), sum(child, stream, communicator.rank()));
          }
        });
  }

  @Test
  @SuppressWarnings("try")
  void childrenSplitAgainAndOutliveTheirParents() throws Exception {
    run(
        4,
        communicator -> {
          int rank = communicator.rank();
          try (Stream stream = communicator.device().newStream();
              Communicator child = communicator.split(0, 3 - rank)) {
            assertNotNull(child);
            try (Communicator grandchild = child.split(child.rank() / 2, 0)) {
              assertNotNull(grandchild);
              child.close();
              child.close();
              assertEquals(Communicator.State.CLOSED, child.state());
              assertEquals(2, grandchild.nranks());
              assertEquals(rank < 2 ? 1 : 5, sum(grandchild, stream, rank));
            }
            assertEquals(6, sum(communicator, stream, rank));
          }
        });
  }

  @Test
  void manySplits() throws Exception {
    run(
        4,
        communicator -> {
          int rank = communicator.rank();
          try (Stream stream = communicator.device().newStream()) {
            for (int i = 0; i < 20; i++) {
              try (Communicator child = communicator.split((rank + i) / 2 % 2, i % 3 * rank)) {
                assertNotNull(child);
                int before = child.nranks();
                assertEquals(before, sum(child, stream, 1));
              }
            }
          }
        });
  }

  @Test
  void aChildHasItsOwnConfiguration() throws Exception {
    CommunicatorConfig config =
        CommunicatorConfig.builder()
            .name("the-child")
            .operationTimeout(Duration.ofSeconds(7))
            .build();
    run(
        2,
        communicator -> {
          try (Communicator child = communicator.split(0, 0, config)) {
            assertNotNull(child);
            assertEquals("the-child", child.name());
            assertEquals(Duration.ofSeconds(7), child.config().operationTimeout());
            assertEquals(TestBackend.CONFIG, communicator.config());
          }
        });
  }

  @Test
  void aFailedChildLeavesItsParentAlone() throws Exception {
    run(
        2,
        communicator -> {
          try (Stream stream = communicator.device().newStream();
              Communicator child = communicator.split(0, 0)) {
            assertNotNull(child);
            if (communicator.rank() == 0) {
              child.abort();
            }
            assertTrue(TestBackend.eventually(() -> child.state() == Communicator.State.ABORTED));
            assertEquals(2, sum(communicator, stream, 1));
          }
        });
  }

  @Test
  void unfinishedOperationsRefuseASplit() throws Exception {
    CommunicatorConfig impatient =
        CommunicatorConfig.builder().operationTimeout(Duration.ofSeconds(2)).build();
    try (Ranks ranks = new Ranks(2, impatient)) {
      ranks.sum(0, 1);
      // On host the ranks agree by collectives of the parent, before which rank 1 owes its sum.
      boolean cuda = TestBackend.BACKEND == Backend.CUDA;
      Throwable[] thrown =
          ranks.outcomes(
              communicator -> {
                if (communicator.rank() == 1 && !cuda) {
                  // Rank 0's sum is unfinished until it has said so.
                  assertTrue(
                      TestBackend.eventually(() -> ranks.get(0).counters().collectives() > 1));
                  ranks.sum(1, 1);
                  ranks.streams.get(1).synchronize();
                }
                communicator.split(0, 0);
              });
      assertInstanceOf(InvalidUsageException.class, thrown[0]);
      assertEquals(0, assertInstanceOf(PeerFailedException.class, thrown[1]).rank());
      if (cuda) {
        ranks.sum(1, 1);
      }
      ranks.synchronize();
      ranks.assertUsable();
    }
  }

  private static final CommunicatorConfig LITTLE =
      CommunicatorConfig.builder().memoryBudget(1).build();

  private static final Map<String, Function<Communicator, Communicator>> REFUSED_ON_ONE_RANK =
      Map.of(
          "the color is -7", c -> c.split(-7, 0),
          "the config is null", c -> c.split(0, 0, null),
          "memory-budget is 1 B", c -> c.split(0, 0, LITTLE));

  /** All ranks end at once, with that rank and its reason, and the communicator stays usable. */
  @ParameterizedTest
  @ValueSource(strings = {"the color is -7", "the config is null", "memory-budget is 1 B"})
  void whatOneRankAloneIsRefusedAllHear(String reason) throws Exception {
    int refused = 1;
    try (Ranks ranks = new Ranks(3)) {
      for (int i = 0; i < 3; i++) {
        long start = System.nanoTime();
        Throwable[] thrown =
            ranks.outcomes(
                c ->
                    assertNull(
                        c.rank() == refused
                            ? REFUSED_ON_ONE_RANK.get(reason).apply(c)
                            : c.split(c.rank() == 2 ? Communicator.NO_COLOR : 0, 0)));
        long millis = (System.nanoTime() - start) / 1_000_000;
        assertTrue(millis < 5_000, millis + " ms");
        for (int rank = 0; rank < 3; rank++) {
          NcclException e = assertInstanceOf(NcclException.class, thrown[rank]);
          assertTrue(e.problem().contains(reason), e::problem);
          if (rank != refused) {
            assertEquals(refused, assertInstanceOf(PeerFailedException.class, e).rank());
          }
        }
        ranks.assertUsable();
      }
    }
  }
}
