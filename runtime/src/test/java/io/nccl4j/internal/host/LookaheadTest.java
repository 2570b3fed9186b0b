package io.nccl4j.internal.host;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ExecutableGraph;
import io.nccl4j.Group;
import io.nccl4j.MismatchException;
import io.nccl4j.ReduceOp;
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

/** What a graph shows to peers before its turn, and what it must not. */
@Timeout(value = 60, threadMode = ThreadMode.SEPARATE_THREAD)
class LookaheadTest {
  private static final int BYTES = 64;

  /** Too much for a slot. */
  private static final int LARGE = 8192;

  /** The kind of step in which each rank sends to the next one. */
  private static final int EXCHANGE = 8;

  private static void add(
      HostRanks ranks, int rank, DeviceBuffer from, DeviceBuffer to, int count) {
    ranks
        .get(rank)
        .allReduce(from, to, count, DataType.INT32, ReduceOp.SUM, ranks.streams.get(rank));
  }

  /** How many operations rank 0 shows when it has launched a graph and rank 1 does nothing. */
  private static int shown(HostRanks ranks, Runnable calls) {
    Stream stream = ranks.streams.getFirst();
    HostCommunicator communicator = ranks.get(0);
    long before = communicator.counters().collectives();
    try (ExecutableGraph graph = GraphEngineTest.executable(stream, calls)) {
      graph.launch(stream);
      stream.query();
      ControlBlock control = communicator.own().part().control();
      int count = 0;
      for (long seq = before + 1; seq <= communicator.counters().collectives(); seq++) {
        long slot = control.outbox(0) + seq % Layout.OUTBOX_SLOTS * Layout.OUTBOX_SLOT_BYTES;
        count += (int) control.getAcquire(slot) == (int) seq ? 1 : 0;
      }
      communicator.abort();
      return count;
    }
  }

  private static int shown(Consumer<HostRanks> calls) {
    try (HostRanks ranks = new HostRanks(2, BYTES)) {
      return shown(ranks, () -> calls.accept(ranks));
    }
  }

  @Test
  void independentOperationsAreShown() {
    assertEquals(
        8,
        shown(
            ranks -> {
              for (int i = 0; i < 8; i++) {
                ranks.sum(0, 1);
              }
            }));
  }

  @Test
  void noMoreThanTheOutboxHolds() {
    assertEquals(
        Layout.OUTBOX_SLOTS,
        shown(
            ranks -> {
              for (int i = 0; i < 2 * Layout.OUTBOX_SLOTS; i++) {
                ranks.sum(0, 1);
              }
            }));
  }

  @Test
  void whatReadsAnEarlierResultIsNot() {
    assertEquals(
        2,
        shown(
            ranks -> {
              DeviceBuffer in = ranks.in.getFirst();
              DeviceBuffer out = ranks.out.getFirst();
              add(ranks, 0, in, out.slice(0, 8), 2);
              add(ranks, 0, out.slice(8, 8), out.slice(16, 8), 2);
              add(ranks, 0, out.slice(4, 8), out.slice(24, 8), 2);
              add(ranks, 0, in, out.slice(32, 8), 2);
            }));
  }

  @Test
  void operationsInPlaceWaitForOneAnother() {
    assertEquals(
        1,
        shown(
            ranks -> {
              DeviceBuffer in = ranks.in.getFirst();
              add(ranks, 0, in, in, 2);
              add(ranks, 0, in, in, 2);
            }));
  }

  @Test
  void barriersAreNotOvertaken() {
    assertEquals(
        1,
        shown(
            ranks -> {
              ranks.sum(0, 1);
              ranks.get(0).barrier(ranks.streams.getFirst());
              ranks.sum(0, 1);
            }));
  }

  @Test
  void copiesAndFillsAreNotOvertaken() {
    assertEquals(
        1,
        shown(
            ranks -> {
              ranks.sum(0, 1);
              ranks.streams.getFirst().fill(ranks.out.getFirst(), (byte) 1);
              ranks.sum(0, 1);
            }));
  }

  /** Who has done its share of a large operation need not wait before it shows the next one. */
  @Test
  void theNextLargeOperationIsShownBeforeOthersHaveDoneTheirShare() {
    try (HostRanks ranks = new HostRanks(2, LARGE)) {
      ranks.sum(1, LARGE / Integer.BYTES);
      ranks.streams.get(1).query();
      ranks.sum(0, LARGE / Integer.BYTES);
      ranks
          .get(0)
          .allReduce(
              ranks.out.getFirst(),
              ranks.in.getFirst(),
              LARGE / Integer.BYTES,
              DataType.INT32,
              ReduceOp.SUM,
              ranks.streams.getFirst());
      ranks.streams.getFirst().query();
      ControlBlock control = ranks.get(0).own().part().control();
      long slot = control.outbox(0) + 2L * Layout.OUTBOX_SLOT_BYTES;
      assertEquals(2, (int) control.getAcquire(slot));
      ranks.get(0).abort();
    }
  }

  /** Two mappings of the same memory have different addresses. */
  @Test
  void memoryFromElsewhereIsNotShown() {
    try (Arena arena = Arena.ofShared();
        HostRanks ranks = new HostRanks(2, BYTES)) {
      DeviceBuffer own = ranks.get(0).device().wrap(arena.allocate(BYTES, 8));
      int shown =
          shown(
              ranks,
              () -> {
                add(ranks, 0, ranks.in.getFirst(), ranks.out.getFirst(), 1);
                add(ranks, 0, own, ranks.out.getFirst(), 1);
              });
      assertEquals(1, shown);
      own.close();
    }
  }

  /**
   * Random chains with every kind of dependence, against a model, the ranks out of step. The wider
   * ones go straight from buffer to buffer.
   */
  @ParameterizedTest
  @CsvSource({"2, 1", "3, 1", "2, 1000", "3, 1000"})
  void chainsGiveWhatPlainCallsGive(int nranks, int width) throws Exception {
    int slots = 6;
    for (int seed = 0; seed < 30; seed++) {
      int[][] model = new int[nranks][slots];
      int[][] steps = steps(new Random(seed), slots, nranks);
      try (HostRanks ranks = new HostRanks(nranks, (long) slots * width * Integer.BYTES)) {
        for (int rank = 0; rank < nranks; rank++) {
          for (int i = 0; i < slots; i++) {
            model[rank][i] = rank * 100 + i;
          }
          ranks.in.get(rank).copyFrom(wide(model[rank], width));
        }
        int launches = 5;
        for (int i = 0; i < launches; i++) {
          Arrays.stream(steps).forEach(step -> apply(step, model));
        }
        int of = seed;
        ranks.run(
            rank -> {
              Stream stream = ranks.streams.get(rank);
              Random delays = new Random(of * 31L + rank);
              Runnable calls =
                  () -> Arrays.stream(steps).forEach(step -> call(ranks, rank, step, width));
              try (ExecutableGraph graph = GraphEngineTest.executable(stream, calls)) {
                for (int i = 0; i < launches; i++) {
                  if (delays.nextInt(3) == 0) {
                    Thread.sleep(delays.nextInt(3));
                  }
                  if (delays.nextInt(4) == 0) {
                    calls.run();
                  } else {
                    graph.launch(stream);
                  }
                }
                stream.synchronize();
              }
              assertArrayEquals(
                  wide(model[rank], width), ranks.in.get(rank).toInts(), "seed " + of);
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

  /** Each a kind, a source, a target and a root, of which the places are ints of one buffer. */
  private static int[][] steps(Random random, int slots, int nranks) {
    int[][] steps = new int[40][];
    for (int i = 0; i < steps.length; i++) {
      int from = random.nextInt(slots);
      int to = random.nextInt(slots);
      int kind = random.nextInt(12);
      if (kind >= EXCHANGE) {
        // A group of a send and a receive must not use one place for both.
        to = to == from ? (to + 1) % slots : to;
        kind = EXCHANGE;
      }
      steps[i] =
          new int[] {kind > 4 && kind != EXCHANGE ? 0 : kind, from, to, random.nextInt(nranks)};
    }
    return steps;
  }

  private static void call(HostRanks ranks, int rank, int[] step, int width) {
    Communicator communicator = ranks.get(rank);
    Stream stream = ranks.streams.get(rank);
    long bytes = (long) width * Integer.BYTES;
    DeviceBuffer from = ranks.in.get(rank).slice(bytes * step[1], bytes);
    DeviceBuffer to = ranks.in.get(rank).slice(bytes * step[2], bytes);
    switch (step[0]) {
      case 0 -> communicator.allReduce(from, to, width, DataType.INT32, ReduceOp.SUM, stream);
      case 1 -> communicator.broadcast(from, to, width, DataType.INT32, step[3], stream);
      case 2 -> communicator.reduce(from, to, width, DataType.INT32, ReduceOp.MAX, step[3], stream);
      case 3 -> stream.fill(to, (byte) 3);
      case EXCHANGE -> {
        int nranks = ranks.size();
        try (Group group = Group.start()) {
          communicator.send(from, width, DataType.INT32, (rank + 1) % nranks, stream);
          communicator.recv(to, width, DataType.INT32, (rank + nranks - 1) % nranks, stream);
          group.launch();
        }
      }
      default -> communicator.barrier(stream);
    }
  }

  private static void apply(int[] step, int[][] model) {
    int from = step[1];
    int to = step[2];
    int sum = Arrays.stream(model).mapToInt(values -> values[from]).sum();
    int most = Arrays.stream(model).mapToInt(values -> values[from]).max().orElseThrow();
    int root = model[step[3]][from];
    int[] sent = Arrays.stream(model).mapToInt(values -> values[from]).toArray();
    for (int rank = 0; rank < model.length; rank++) {
      switch (step[0]) {
        case 0 -> model[rank][to] = sum;
        case 1 -> model[rank][to] = root;
        case 2 -> model[rank][to] = rank == step[3] ? most : model[rank][to];
        case 3 -> model[rank][to] = 0x03030303;
        case EXCHANGE -> model[rank][to] = sent[(rank + sent.length - 1) % sent.length];
        default -> {}
      }
    }
  }

  /** A contradiction in the middle of what was shown is named. */
  @Test
  void contradictionsAreNamed() throws Exception {
    try (HostRanks ranks = new HostRanks(2, BYTES)) {
      ranks.run(
          rank -> {
            Stream stream = ranks.streams.get(rank);
            try (ExecutableGraph graph =
                GraphEngineTest.executable(
                    stream,
                    () -> {
                      for (int i = 0; i < 10; i++) {
                        ranks.sum(rank, i == 6 ? 2 + rank : 1);
                      }
                    })) {
              graph.launch(stream);
              String message =
                  assertThrows(MismatchException.class, stream::synchronize).getMessage();
              assertTrue(message.contains("#7"), message);
              assertTrue(message.contains("allReduce(2 int32, sum)"), message);
              assertTrue(message.contains("allReduce(3 int32, sum)"), message);
            }
          });
    }
  }
}
