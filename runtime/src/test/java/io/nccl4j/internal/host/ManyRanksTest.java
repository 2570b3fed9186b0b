package io.nccl4j.internal.host;

import io.nccl4j.Stream;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ThreadFactory;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;

/**
 * More ranks than processors, whoever drives them: every operation in turn, small, direct and
 * uneven.
 */
@Timeout(value = 60, threadMode = ThreadMode.SEPARATE_THREAD)
class ManyRanksTest {
  /**
   * Elements: empty, low latency, not a multiple of anything, several blocks of a cache line per
   * rank.
   */
  private static final int[] COUNTS = {0, 1, 7, 333, 5000};

  @Test
  void oneThreadDrivesSixteenRanks() {
    driveAlone(16, 2);
  }

  @Tag("long")
  @Timeout(600)
  @Test
  void oneThreadDrivesSixtyFourRanks() {
    driveAlone(64, 20);
  }

  private static void driveAlone(int nranks, int rounds) {
    try (HostRanks ranks = new HostRanks(nranks, bytes(nranks))) {
      int salt = 0;
      for (int round = 0; round < rounds; round++) {
        for (Trial.Op op : Trial.Op.values()) {
          for (int count : COUNTS) {
            salt++;
            List<Trial> trials = new ArrayList<>();
            for (int rank = 0; rank < nranks; rank++) {
              trials.add(ranks.start(op, rank, count, salt));
            }
            // Any order of synchronising must do: the thread helps the streams it has submitted to.
            for (int i = 0; i < nranks; i++) {
              ranks.streams.get((i + salt) % nranks).synchronize();
            }
            for (int rank = 0; rank < nranks; rank++) {
              trials.get(rank).check(ranks.out.get(rank));
            }
          }
        }
      }
    }
  }

  @Test
  void sixteenThreads() throws Exception {
    driveByThreads(16, 2, Thread.ofPlatform().name("rank-", 0).factory());
  }

  @Test
  void sixtyFourVirtualThreads() throws Exception {
    driveByThreads(64, 1, Thread.ofVirtual().name("rank-", 0).factory());
  }

  @Tag("long")
  @Timeout(900)
  @Test
  void sixtyFourThreads() throws Exception {
    driveByThreads(64, 10, Thread.ofPlatform().name("rank-", 0).factory());
  }

  private static void driveByThreads(int nranks, int rounds, ThreadFactory threads)
      throws Exception {
    try (HostRanks ranks = new HostRanks(nranks, bytes(nranks))) {
      ranks.run(
          threads,
          rank -> {
            Stream stream = ranks.streams.get(rank);
            int salt = 0;
            for (int round = 0; round < rounds; round++) {
              for (Trial.Op op : Trial.Op.values()) {
                for (int count : COUNTS) {
                  Trial trial = ranks.start(op, rank, count, ++salt);
                  stream.synchronize();
                  trial.check(ranks.out.get(rank));
                }
              }
            }
          });
    }
  }

  private static long bytes(int nranks) {
    return (long) nranks * (COUNTS[COUNTS.length - 1] + 8) * Integer.BYTES;
  }
}
