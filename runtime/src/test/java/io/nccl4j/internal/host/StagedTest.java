package io.nccl4j.internal.host;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.Device;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.bootstrap.ChildJvm;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;

/**
 * Buffers that are private to their process mixed with shared ones, differently on every rank and
 * in every operation, small and far larger than a staging area.
 */
@Tag("process")
@Timeout(value = 120, threadMode = ThreadMode.SEPARATE_THREAD)
@Tag("parallel")
class StagedTest {
  /**
   * Elements: low latency, direct, one piece, and with three ranks up to sixteen pieces of 512 KiB;
   * the last ones are not multiples of anything.
   */
  private static final int[] COUNTS = {0, 11, 5_000, 43_691, 333_333, 700_001};

  /** Low latency, one piece, several. */
  private static final int[] FEW_COUNTS = {11, 43_691, 333_333};

  @Test
  void mixedBuffersOfThreeProcesses() throws Exception {
    run(3, 1, FEW_COUNTS);
  }

  @Tag("long")
  @Timeout(1200)
  @Test
  void mixedBuffersOfFiveProcesses() throws Exception {
    run(5, 5, COUNTS);
  }

  private static void run(int nranks, int rounds, int... counts) throws Exception {
    long seed = new Random().nextLong();
    System.out.println("seed " + seed);
    Random random = new Random(seed);
    List<ChildJvm> children = new ArrayList<>();
    try {
      UniqueId id = UniqueId.create(Backend.HOST);
      for (int rank = 1; rank < nranks; rank++) {
        ChildJvm child = ChildJvm.start(RankMain.class);
        children.add(child);
        child.tell("join " + id + " " + nranks + " " + rank);
      }
      try (Communicator own =
              Communicator.initRank(
                  Device.get(Backend.HOST, 0), nranks, id, 0, HostRanks.patient().build());
          Stream stream = own.device().newStream()) {
        for (int round = 0; round < rounds; round++) {
          for (int count : counts) {
            int salt = random.nextInt(1000);
            for (ChildJvm child : children) {
              child.tell("trials " + count + " " + salt);
            }
            int hash = RankMain.trials(own, stream, count, salt);
            for (ChildJvm child : children) {
              assertEquals(Integer.toString(hash), child.expect("agreed"));
            }
          }
        }
        for (ChildJvm child : children) {
          child.tell("close");
          child.expect("closed");
        }
      }
    } finally {
      children.forEach(ChildJvm::close);
    }
  }
}
