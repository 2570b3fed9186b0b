package io.nccl4j.conformance;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Communicator;
import io.nccl4j.Communicators;
import io.nccl4j.DataType;
import io.nccl4j.Group;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.MismatchException;
import io.nccl4j.NcclException;
import io.nccl4j.ReduceOp;
import io.nccl4j.WarmUp;
import io.nccl4j.WarmUp.Operation;
import io.nccl4j.memory.MemoryPurpose;
import io.nccl4j.memory.MemoryReport;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Warming up touches nothing of the caller's, on any backend, and is refused before it begins. */
@Timeout(value = 120, threadMode = ThreadMode.SEPARATE_THREAD)
class WarmUpConformanceTest {
  private static WarmUp.Builder everything(int iterations) {
    return WarmUp.builder()
        .sizes(0, 8, 5000)
        .types(DataType.FLOAT32, DataType.INT8)
        .reductions(ReduceOp.Kind.SUM, ReduceOp.Kind.values())
        .captured(true)
        .wrapped(true)
        .iterations(iterations);
  }

  private static void assertNobodyFailed(Throwable[] outcomes) {
    for (Throwable outcome : outcomes) {
      if (outcome != null) {
        throw new AssertionError(outcome);
      }
    }
  }

  /** Operations before and after it are right, those it finds queued as well. */
  @ParameterizedTest
  @ValueSource(ints = {1, 2, 3})
  void leavesBuffersAndUnfinishedOperationsAlone(int nranks) throws Exception {
    try (Ranks ranks = new Ranks(nranks)) {
      WarmUp plan = everything(3).build();
      Communicators.RankTask task =
          communicator -> {
            int rank = communicator.rank();
            ranks.put(rank, rank + 1, 5, 9);
            ranks.out.get(rank).copyFrom(new int[] {77, 77, 77, 77});
            ranks.sum(rank, 3);
            communicator.warmUp(plan);
            ranks.streams.get(rank).synchronize();
            int sum = nranks * (nranks + 1) / 2;
            assertArrayEquals(new int[] {sum, 5 * nranks, 9 * nranks, 77}, ranks.got(rank, 4));
          };
      assertNobodyFailed(ranks.outcomes(task));
      ranks.assertUsable();
      for (Communicator communicator : ranks.communicators) {
        assertEquals(Communicator.State.READY, communicator.state());
        assertEquals(0, communicator.counters().unfinishedWorks());
      }
    }
  }

  @Test
  void itsMemoryIsGivenBack() throws Exception {
    try (Ranks ranks = new Ranks(2)) {
      WarmUp plan = everything(20).mostOperations(600).build();
      assertNobodyFailed(ranks.outcomes(communicator -> communicator.warmUp(plan)));
      long before = MemoryReport.of(ranks.get(0).device()).bytes(MemoryPurpose.USER);
      assertNobodyFailed(ranks.outcomes(communicator -> communicator.warmUp(plan)));
      assertEquals(before, MemoryReport.of(ranks.get(0).device()).bytes(MemoryPurpose.USER));
      ranks.assertUsable();
    }
  }

  @Test
  void differentPlansAreRefusedOnAllRanks() throws Exception {
    try (Ranks ranks = new Ranks(2)) {
      Throwable[] outcomes =
          ranks.outcomes(
              communicator ->
                  communicator.warmUp(everything(communicator.rank() == 1 ? 3 : 4).build()));
      for (int rank = 0; rank < 2; rank++) {
        NcclException e = assertInstanceOf(MismatchException.class, outcomes[rank]);
        assertTrue(
            String.valueOf(e.getMessage()).contains("another plan than ranks 1; rank " + rank),
            e::toString);
      }
      ranks.assertUsable();
    }
  }

  @Test
  @SuppressWarnings("NullAway") // on purpose
  void refusesWhatCannotBe() {
    try (Ranks ranks = new Ranks(2)) {
      Communicator communicator = ranks.get(0);
      assertThrows(InvalidArgumentException.class, () -> communicator.warmUp(null));
      WarmUp stranger = WarmUp.builder().peers(0, 2).build();
      assertThrows(InvalidArgumentException.class, () -> communicator.warmUp(stranger));
      WarmUp plan = WarmUp.of(Operation.BARRIER);
      assertThrows(InvalidUsageException.class, () -> Group.run(() -> communicator.warmUp(plan)));
      ranks.assertUsable();
      ranks.communicators.close();
      assertThrows(InvalidUsageException.class, () -> communicator.warmUp(plan));
    }
  }

  @Test
  void anAbortedCommunicatorIsNotWarmedUp() {
    try (Ranks ranks = new Ranks(2)) {
      ranks.get(0).abort();
      WarmUp plan = WarmUp.of(Operation.BARRIER);
      assertThrows(NcclException.class, () -> ranks.get(0).warmUp(plan));
      ranks.get(1).abort();
    }
  }
}
