package io.nccl4j.internal.host;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;

import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Group;
import io.nccl4j.Stream;
import io.nccl4j.internal.host.layout.Layout;
import io.nccl4j.internal.host.progress.Progress;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;

/**
 * A slot of the outbox or of a lane is written again only when the slowest reader is done with it.
 */
@Timeout(value = 60, threadMode = ThreadMode.SEPARATE_THREAD)
class LaggingRankTest {
  private static final int WORDS = 8;

  private static int[] words(int i) {
    int[] values = new int[WORDS];
    Arrays.fill(values, i);
    return values;
  }

  /**
   * How many operations the rank may be ahead before its stream stops: it can't be driven further.
   */
  private static int ahead(HostStream stream) {
    long before;
    do {
      before = stream.head();
      Progress.poke(stream);
    } while (stream.head() != before);
    return (int) before;
  }

  @Test
  void aRootStopsSixteenBroadcastsAheadOfTheSlowestRank() {
    int operations = 200;
    try (HostRanks ranks = new HostRanks(3, (long) operations * WORDS * Integer.BYTES)) {
      for (int i = 0; i < operations; i++) {
        broadcast(ranks, 0, i);
      }
      HostStream root = HostStream.of(ranks.streams.get(0));
      assertEquals(Layout.OUTBOX_SLOTS, ahead(root));
      // One of the two others catching up is not enough.
      for (int i = 0; i < operations; i++) {
        broadcast(ranks, 1, i);
      }
      assertEquals(Layout.OUTBOX_SLOTS, ahead(HostStream.of(ranks.streams.get(1))));
      assertEquals(Layout.OUTBOX_SLOTS, ahead(root));
      for (int i = 0; i < operations; i++) {
        broadcast(ranks, 2, i);
      }
      ranks.streams.forEach(Stream::synchronize);
      for (int i = 0; i < operations; i++) {
        for (int rank = 1; rank < 3; rank++) {
          assertArrayEquals(words(i), slot(ranks.out.get(rank), i).toInts(), "operation " + i);
        }
      }
    }
  }

  private static DeviceBuffer slot(DeviceBuffer buffer, int i) {
    return buffer.slice((long) i * WORDS * Integer.BYTES, WORDS * Integer.BYTES);
  }

  private static void broadcast(HostRanks ranks, int rank, int i) {
    DeviceBuffer in = slot(ranks.in.get(rank), i);
    in.copyFrom(words(rank == 0 ? i : -1));
    ranks
        .get(rank)
        .broadcast(
            in, slot(ranks.out.get(rank), i), WORDS, DataType.INT32, 0, ranks.streams.get(rank));
  }

  /**
   * Any rank lags at any time, roots change, one-way and two-way operations mix; threads are
   * free-running.
   */
  @Test
  void randomLags() throws Exception {
    long seed = new Random().nextLong();
    System.out.println("seed " + seed);
    Trial.Op[] ops = {
      Trial.Op.BROADCAST, Trial.Op.REDUCE, Trial.Op.GATHER, Trial.Op.SCATTER, Trial.Op.ALL_GATHER
    };
    int batch = 40;
    try (HostRanks ranks = new HostRanks(4, 1 << 10)) {
      ranks.run(
          rank -> {
            Random shared = new Random(seed);
            Random own = new Random(seed + 1 + rank);
            List<DeviceBuffer> buffers = new ArrayList<>();
            for (int i = 0; i < 2 * batch; i++) {
              buffers.add(ranks.get(rank).device().allocate(1 << 10));
            }
            Stream stream = ranks.streams.get(rank);
            for (int round = 0; round < 100; round++) {
              List<Trial> trials = new ArrayList<>();
              for (int i = 0; i < batch; i++) {
                Trial trial =
                    new Trial(
                        ops[shared.nextInt(ops.length)],
                        4,
                        rank,
                        shared.nextInt(20),
                        shared.nextInt(100));
                trial.prepare(buffers.get(2 * i), buffers.get(2 * i + 1));
                trial.issue(ranks.get(rank), buffers.get(2 * i), buffers.get(2 * i + 1), stream);
                trials.add(trial);
                for (int spin = own.nextInt(40) == 0 ? 20_000 : 0; spin > 0; spin--) {
                  Thread.onSpinWait();
                }
              }
              stream.synchronize();
              for (int i = 0; i < batch; i++) {
                trials.get(i).check(buffers.get(2 * i + 1));
              }
            }
            buffers.forEach(DeviceBuffer::close);
          });
    }
  }

  @Test
  void eagerSendsStopAtEightUnacknowledged() {
    int messages = 100;
    try (HostRanks ranks = new HostRanks(2, (long) messages * WORDS * Integer.BYTES)) {
      HostStream sender = HostStream.of(ranks.streams.get(0));
      for (int i = 0; i < messages; i++) {
        DeviceBuffer in = slot(ranks.in.get(0), i);
        in.copyFrom(words(i));
        ranks.get(0).send(in, WORDS, DataType.INT32, 1, ranks.streams.get(0));
      }
      assertEquals(Layout.LANE_SLOTS, ahead(sender));
      for (int i = 0; i < messages; i++) {
        ranks
            .get(1)
            .recv(slot(ranks.out.get(1), i), WORDS, DataType.INT32, 0, ranks.streams.get(1));
      }
      ranks.streams.get(1).synchronize();
      ranks.streams.get(0).synchronize();
      for (int i = 0; i < messages; i++) {
        assertArrayEquals(words(i), slot(ranks.out.get(1), i).toInts(), "message " + i);
      }
    }
  }

  /** Eager, pulled and empty messages in one lane stay in order, in groups larger than the lane. */
  @Test
  void mixedMessagesInGroupsLargerThanTheLane() throws Exception {
    long seed = new Random().nextLong();
    System.out.println("seed " + seed);
    int messages = 30;
    int most = 3000;
    long bytes = (long) messages * most * Integer.BYTES;
    try (HostRanks ranks = new HostRanks(3, bytes)) {
      ranks.run(
          rank -> {
            Random shared = new Random(seed);
            Stream stream = ranks.streams.get(rank);
            int next = (rank + 1) % 3;
            int previous = (rank + 2) % 3;
            for (int round = 0; round < 100; round++) {
              int[] counts =
                  shared
                      .ints(messages, 0, 6)
                      .map(k -> new int[] {0, 1, 126, 127, 500, most}[k])
                      .toArray();
              int[] values = new int[messages * most];
              for (int i = 0; i < messages; i++) {
                Arrays.fill(values, i * most, (i + 1) * most, value(round, rank, i));
              }
              ranks.in.get(rank).copyFrom(values);
              try (Group group = Group.start()) {
                for (int i = 0; i < messages; i++) {
                  long at = (long) i * most * Integer.BYTES;
                  ranks
                      .get(rank)
                      .send(ranks.in.get(rank).slice(at), counts[i], DataType.INT32, next, stream);
                  ranks
                      .get(rank)
                      .recv(
                          ranks.out.get(rank).slice(at),
                          counts[i],
                          DataType.INT32,
                          previous,
                          stream);
                }
                group.launch();
              }
              stream.synchronize();
              int[] found = ranks.out.get(rank).toInts();
              for (int i = 0; i < messages; i++) {
                for (int e = 0; e < counts[i]; e++) {
                  assertEquals(value(round, previous, i), found[i * most + e], "message " + i);
                }
              }
            }
          });
    }
  }

  private static int value(int round, int rank, int message) {
    return round * 1000 + rank * 100 + message;
  }

  /** A large send is not complete before its receive, and its lane does not hold up another one. */
  @Test
  void aPulledSendWaitsAlone() {
    int count = 10_000;
    try (HostRanks ranks = new HostRanks(3, (long) count * Integer.BYTES)) {
      Stream waiting = ranks.streams.get(0);
      ranks.get(0).send(ranks.in.get(0), count, DataType.INT32, 1, waiting);
      assertFalse(waiting.query());
      try (Stream other = ranks.get(0).device().newStream()) {
        ranks.get(0).send(ranks.in.get(0), count, DataType.INT32, 2, other);
        ranks.get(2).recv(ranks.out.get(2), count, DataType.INT32, 0, ranks.streams.get(2));
        other.synchronize();
        ranks.streams.get(2).synchronize();
        assertFalse(waiting.query());
      }
      ranks.get(1).recv(ranks.out.get(1), count, DataType.INT32, 0, ranks.streams.get(1));
      ranks.streams.get(1).synchronize();
      waiting.synchronize();
    }
  }
}
