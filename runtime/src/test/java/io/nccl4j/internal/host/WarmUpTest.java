package io.nccl4j.internal.host;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.CommunicatorCounters;
import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.Group;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.MismatchException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.Tier;
import io.nccl4j.UniqueId;
import io.nccl4j.WarmUp;
import io.nccl4j.WarmUp.Operation;
import io.nccl4j.internal.bootstrap.ChildJvm;
import java.util.List;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.FieldSource;

/** Warming up: the same on all ranks, and nothing of the caller's is touched. */
@Timeout(value = 120, threadMode = ThreadMode.SEPARATE_THREAD)
class WarmUpTest {
  private static final int COUNT = 1000;
  static final List<Integer> RANKS = Tier.choose(List.of(1, 3), List.of(1, 2, 3, 5));

  private static WarmUp.Builder everything(int iterations) {
    return WarmUp.builder()
        .sizes(0, 1, 8, 600, 5000)
        .types(DataType.FLOAT32, DataType.INT8, DataType.FLOAT64, DataType.BFLOAT16)
        .reductions(ReduceOp.Kind.SUM, ReduceOp.Kind.values())
        .captured(true)
        .wrapped(true)
        .iterations(iterations);
  }

  /**
   * Every operation gives the right result after a warm-up with everything, which found it queued.
   */
  @ParameterizedTest
  @FieldSource("RANKS")
  void leavesBuffersAndUnfinishedOperationsAlone(int nranks) throws Exception {
    try (HostRanks ranks = new HostRanks(nranks, 8L * COUNT * Integer.BYTES)) {
      WarmUp plan = everything(2).build();
      ranks.run(
          rank -> {
            for (Trial.Op op : Trial.Op.values()) {
              Trial trial = ranks.start(op, rank, COUNT, op.ordinal());
              if (op.ordinal() % 5 == 0) {
                ranks.get(rank).warmUp(plan);
              }
              ranks.streams.get(rank).synchronize();
              trial.check(ranks.out.get(rank));
            }
          });
      for (Communicator communicator : ranks.communicators) {
        assertEquals(Communicator.State.READY, communicator.state());
        assertEquals(0, communicator.counters().unfinishedWorks());
      }
    }
  }

  /** Operations of every kind are right after the warm-up of processes, as they are without. */
  @Tag("process")
  @Test
  void warmsProcessesUp() throws Exception {
    UniqueId id = UniqueId.create(Backend.HOST);
    try (ChildJvm child = ChildJvm.start(RankMain.class)) {
      child.tell("join " + id + " 2 1");
      child.tell("warm 10");
      child.tell("trials 5000 1");
      child.tell("close");
      try (Communicator own =
              Communicator.initRank(
                  Device.get(Backend.HOST, 0), 2, id, 0, HostRanks.patient().build());
          Stream stream = own.device().newStream()) {
        own.warmUp(RankMain.warmUp(10));
        int hash = RankMain.trials(own, stream, 5000, 1);
        child.expect("warm");
        assertEquals(Integer.toString(hash), child.expect("agreed"));
        child.expect("closed");
      }
    }
  }

  @Test
  void worksWithTheSmallestFifo() throws Exception {
    CommunicatorConfig small = HostRanks.patient().fifoBytes(4096).build();
    try (HostRanks ranks = new HostRanks(3, 64, small)) {
      ranks.run(rank -> ranks.get(rank).warmUp(everything(50).mostOperations(5_000).build()));
      assertEquals(0, ranks.get(1).counters().unfinishedWorks());
    }
  }

  @Test
  void differentPlansAreRefusedOnAllRanksAndNothingIsRun() throws Exception {
    try (HostRanks ranks = new HostRanks(3, 64)) {
      ranks.run(
          rank -> {
            WarmUp plan = everything(rank == 1 ? 3 : 4).build();
            MismatchException e =
                assertThrows(MismatchException.class, () -> ranks.get(rank).warmUp(plan));
            assertTrue(e.getMessage().contains("than ranks 1; rank " + rank), e.getMessage());
            assertEquals(1, ranks.get(rank).counters().collectives());
            assertEquals(Communicator.State.READY, ranks.get(rank).state());
            ranks.get(rank).warmUp(WarmUp.of(Operation.BARRIER));
          });
    }
  }

  /** One rank warms up, another one issues something else: both are told. */
  @Test
  void anOperationInsteadIsAMismatch() throws Exception {
    try (HostRanks ranks = new HostRanks(2, 64)) {
      ranks.run(
          rank ->
              assertThrows(
                  MismatchException.class,
                  () -> {
                    if (rank == 0) {
                      ranks.get(0).warmUp(WarmUp.of(Operation.ALL_REDUCE));
                    } else {
                      ranks.sum(1, 3);
                      ranks.streams.get(1).synchronize();
                    }
                  }));
    }
  }

  @Test
  @SuppressWarnings("NullAway") // on purpose
  void refusesWhatCannotBe() {
    try (HostRanks ranks = new HostRanks(2, 64)) {
      Communicator comm = ranks.get(0);
      assertThrows(InvalidArgumentException.class, () -> comm.warmUp(null));
      WarmUp stranger = WarmUp.builder().peers(0, 2).build();
      assertThrows(InvalidArgumentException.class, () -> comm.warmUp(stranger));
      Group group = Group.start();
      WarmUp plan = WarmUp.of(Operation.BARRIER);
      assertThrows(InvalidUsageException.class, () -> comm.warmUp(plan));
      group.close();
      assertEquals(0, comm.counters().collectives());
      WarmUp.Builder builder = WarmUp.builder();
      assertThrows(InvalidArgumentException.class, () -> builder.iterations(0));
      assertThrows(InvalidArgumentException.class, () -> builder.mostOperations(0));
      assertThrows(InvalidArgumentException.class, () -> builder.sizes());
      assertThrows(InvalidArgumentException.class, () -> builder.sizes(8, -1));
      assertThrows(InvalidArgumentException.class, () -> builder.types(null));
    }
  }

  /** With peer 1 alone, ranks 0 and 2 exchange nothing. */
  @Test
  void messagesGoBetweenPeersOnly() throws Exception {
    int iterations = 10;
    WarmUp plan =
        WarmUp.builder()
            .operations(Operation.SEND_RECV)
            .sizes(8)
            .peers(1)
            .iterations(2 * iterations)
            .build();
    try (HostRanks ranks = new HostRanks(3, 64)) {
      ranks.run(rank -> ranks.get(rank).warmUp(plan));
      for (int rank = 0; rank < 3; rank++) {
        CommunicatorCounters counters = ranks.get(rank).counters();
        assertEquals(rank == 1 ? 2L * iterations : iterations, counters.sends());
        assertEquals(counters.sends(), counters.receives());
      }
    }
  }

  @Test
  void iterationsFollowFromThePlanAlone() {
    WarmUp one = WarmUp.builder().operations(Operation.ALL_REDUCE).sizes(8, 1 << 20).build();
    assertEquals(12_000, one.iterations(8));
    assertEquals(12_000, one.iterations(4096));
    assertEquals(12_000 / 256, one.iterations(1 << 20));
    assertEquals(1, one.iterations(1L << 40));
    WarmUp many = everything(12_000).mostOperations(100).build();
    assertEquals(1, many.iterations(8));
    // Ten operations without a reduction, of which one has no size, and four with: 14 and 1.
    WarmUp all = WarmUp.builder().build();
    assertEquals(240_000 / (14 * 3 + 1), all.iterations(8));
  }

  @Test
  void plansAreValues() {
    WarmUp.Builder builder = everything(5);
    WarmUp plan = builder.build();
    assertEquals(everything(5).build(), plan);
    assertEquals(everything(5).build().hashCode(), plan.hashCode());
    builder.iterations(6).sizes(9);
    assertEquals(5, plan.iterations());
    assertNotEquals(builder.build(), plan);
    assertFalse(plan.sizes().contains(9L));
    assertThrows(UnsupportedOperationException.class, () -> plan.operations().clear());
  }
}
