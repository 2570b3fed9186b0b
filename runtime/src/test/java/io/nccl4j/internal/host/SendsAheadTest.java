package io.nccl4j.internal.host;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Group;
import io.nccl4j.Stream;
import io.nccl4j.internal.host.layout.ControlBlock;
import io.nccl4j.internal.host.layout.Layout;
import java.lang.foreign.Arena;
import java.util.Arrays;
import java.util.Random;
import java.util.function.Consumer;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Which messages of a host are shown to their receivers before their turn, and which are not. */
@Timeout(value = 60, threadMode = ThreadMode.SEPARATE_THREAD)
class SendsAheadTest {
  private static final int BYTES = 64 << 10;

  /** Ints that travel in a slot, and ints of which only the address does. */
  private static final int SMALL = 2;

  private static final int LARGE = 2000;

  /** Sends to the next rank and receives from the one before. */
  private static void exchange(
      HostRanks ranks, int rank, DeviceBuffer from, DeviceBuffer to, int count) {
    int nranks = ranks.size();
    Stream stream = ranks.streams.get(rank);
    try (Group group = Group.start()) {
      ranks.get(rank).send(from, count, DataType.INT32, (rank + 1) % nranks, stream);
      ranks.get(rank).recv(to, count, DataType.INT32, (rank + nranks - 1) % nranks, stream);
      group.launch();
    }
  }

  /** How many messages rank 0 shows to rank 1, which does nothing. */
  private static int shown(Consumer<HostRanks> calls) {
    try (HostRanks ranks = new HostRanks(2, BYTES)) {
      calls.accept(ranks);
      for (int i = 0; i < 3; i++) {
        ranks.streams.getFirst().query();
      }
      ControlBlock control = ranks.get(0).own().part().control();
      int count = 0;
      for (long seq = 1; seq <= Layout.LANE_SLOTS; seq++) {
        long slot = control.lane(0, 1) + seq % Layout.LANE_SLOTS * Layout.LANE_SLOT_BYTES;
        count += (int) control.getAcquire(slot) == (int) seq ? 1 : 0;
      }
      ranks.get(0).abort();
      return count;
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {SMALL, LARGE})
  void asManyAreShownAsTheLaneHolds(int count) {
    assertEquals(
        Layout.LANE_SLOTS,
        shown(
            ranks -> {
              for (int i = 0; i < 3 * Layout.LANE_SLOTS; i++) {
                exchange(ranks, 0, ranks.in.getFirst(), ranks.out.getFirst(), count);
              }
            }));
  }

  @ParameterizedTest
  @ValueSource(ints = {SMALL, LARGE})
  void whatAMessageBeforeWritesIsNotShown(int count) {
    assertEquals(
        2,
        shown(
            ranks -> {
              DeviceBuffer in = ranks.in.getFirst();
              DeviceBuffer out = ranks.out.getFirst();
              long bytes = (long) count * Integer.BYTES;
              exchange(ranks, 0, in, out.slice(0, bytes), count);
              // Between what the two write, and apart from it.
              exchange(ranks, 0, out.slice(2 * bytes, bytes), out.slice(3 * bytes, bytes), count);
              exchange(ranks, 0, out.slice(bytes / 2, bytes), out.slice(4 * bytes, bytes), count);
              exchange(ranks, 0, in, out.slice(4 * bytes, bytes), count);
            }));
  }

  @Test
  void copiesFillsAndCollectivesAreNotOvertaken() {
    DataType type = DataType.INT32;
    assertEquals(
        1,
        shown(
            ranks -> {
              exchange(ranks, 0, ranks.in.getFirst(), ranks.out.getFirst(), SMALL);
              ranks.streams.getFirst().fill(ranks.in.getFirst(), (byte) 1);
              exchange(ranks, 0, ranks.in.getFirst(), ranks.out.getFirst(), SMALL);
            }));
    assertEquals(
        1,
        shown(
            ranks -> {
              DeviceBuffer in = ranks.in.getFirst();
              exchange(ranks, 0, in, ranks.out.getFirst(), SMALL);
              ranks.get(0).broadcast(in, in, SMALL, type, 1, ranks.streams.getFirst());
              exchange(ranks, 0, in, ranks.out.getFirst(), SMALL);
            }));
  }

  /** Two mappings of the same memory have different addresses. */
  @Test
  void memoryFromElsewhereIsNotShown() {
    try (Arena arena = Arena.ofShared()) {
      assertEquals(
          1,
          shown(
              ranks -> {
                DeviceBuffer own = ranks.get(0).device().wrap(arena.allocate(BYTES, 8));
                exchange(ranks, 0, ranks.in.getFirst(), ranks.out.getFirst(), SMALL);
                exchange(ranks, 0, own, ranks.out.getFirst(), SMALL);
              }));
    }
  }

  /** Random exchanges between places of one buffer, the ranks out of step, against a model. */
  @ParameterizedTest
  @CsvSource({"2, 2", "3, 2", "1, 2", "2, 2000", "3, 2000"})
  void chainsGiveWhatTheModelGives(int nranks, int width) throws Exception {
    int places = 6;
    long bytes = (long) width * Integer.BYTES;
    for (int seed = 0; seed < 20; seed++) {
      int[][] steps = steps(new Random(seed), places);
      int[][] model = new int[nranks][places];
      try (HostRanks ranks = new HostRanks(nranks, places * bytes)) {
        for (int rank = 0; rank < nranks; rank++) {
          for (int i = 0; i < places; i++) {
            model[rank][i] = rank * 100 + i;
          }
          ranks.in.get(rank).copyFrom(wide(model[rank], width));
        }
        for (int[] step : steps) {
          int[] sent = Arrays.stream(model).mapToInt(values -> values[step[0]]).toArray();
          for (int rank = 0; rank < nranks; rank++) {
            model[rank][step[1]] = sent[(rank + nranks - 1) % nranks];
          }
        }
        int of = seed;
        ranks.run(
            rank -> {
              Random delays = new Random(of * 31L + rank);
              DeviceBuffer all = ranks.in.get(rank);
              for (int[] step : steps) {
                if (delays.nextInt(20) == 0) {
                  Thread.sleep(delays.nextInt(2));
                }
                DeviceBuffer from = all.slice(bytes * step[0], bytes);
                exchange(ranks, rank, from, all.slice(bytes * step[1], bytes), width);
              }
              ranks.streams.get(rank).synchronize();
              assertArrayEquals(wide(model[rank], width), all.toInts(), "seed " + of);
            });
      }
    }
  }

  /** Each value so many times. */
  private static int[] wide(int[] values, int width) {
    return Arrays.stream(values)
        .flatMap(value -> IntStream.generate(() -> value).limit(width))
        .toArray();
  }

  /** From where to where, never the same place. */
  private static int[][] steps(Random random, int places) {
    int[][] steps = new int[60][];
    for (int i = 0; i < steps.length; i++) {
      int from = random.nextInt(places);
      steps[i] = new int[] {from, (from + 1 + random.nextInt(places - 1)) % places};
    }
    return steps;
  }
}
