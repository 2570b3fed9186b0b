package io.nccl4j.conformance;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.params.provider.Arguments.arguments;

import io.nccl4j.AbortedException;
import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.DeadlineException;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Event;
import io.nccl4j.ExecutableGraph;
import io.nccl4j.Graph;
import io.nccl4j.Group;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.MismatchException;
import io.nccl4j.NcclException;
import io.nccl4j.PeerFailedException;
import io.nccl4j.PinnedBuffer;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import java.lang.foreign.Arena;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Captured work does what it would have done uncaptured, as often as it is launched. */
@Timeout(value = 60, threadMode = ThreadMode.SEPARATE_THREAD)
class GraphTest {
  private static final int INT = Integer.BYTES;

  /** A count for which data is exchanged between buffers, not through mailboxes. */
  private static final int MANY = 10_000;

  private static Graph capture(Stream stream, Runnable calls) {
    stream.beginCapture();
    calls.run();
    return stream.endCapture();
  }

  private static ExecutableGraph executable(Stream stream, Runnable calls) {
    try (Graph graph = capture(stream, calls)) {
      return graph.instantiate();
    }
  }

  private static List<ExecutableGraph> sums(Ranks ranks, int count) {
    List<ExecutableGraph> graphs = new ArrayList<>();
    for (int rank = 0; rank < ranks.size(); rank++) {
      int of = rank;
      graphs.add(executable(ranks.streams.get(rank), () -> ranks.sum(of, count)));
    }
    return graphs;
  }

  /** The buffer's first elements, one value each; waits for the stream. */
  private static void assertHolds(DeviceBuffer buffer, int count, int value) {
    int[] values = new int[count];
    buffer.copyTo(values);
    for (int i = 0; i < count; i++) {
      if (values[i] != value) {
        throw new AssertionError("element " + i + " is " + values[i] + ", not " + value);
      }
    }
  }

  private static void put(DeviceBuffer buffer, int count, int value) {
    int[] values = new int[count];
    java.util.Arrays.fill(values, value);
    buffer.copyFrom(values);
  }

  private static void assertRefused(String word, Executable call) {
    InvalidUsageException e = assertThrows(InvalidUsageException.class, call);
    assertTrue(e.getMessage().contains(word), e::getMessage);
  }

  private static void pause(int millis) {
    LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(millis));
  }

  // ---- what can be captured

  static List<Arguments> layouts() {
    return List.of(
        arguments(RankLayout.THREADS, 2),
        arguments(RankLayout.THREADS, 3),
        arguments(RankLayout.ONE_THREAD, 2),
        arguments(RankLayout.ONE_THREAD, 4));
  }

  @ParameterizedTest
  @MethodSource("layouts")
  void everyOperation(RankLayout layout, int nranks) throws Exception {
    List<Case> all =
        CaseGenerator.sample(layout, nranks).stream()
            .filter(c -> c.memory() != Case.Memory.ARRAYS)
            .toList();
    List<Case> cases = new ArrayList<>();
    for (int i = 0; i < all.size(); i += 5) {
      cases.add(all.get(i));
    }
    List<Oracle> oracles = cases.stream().map(Oracle::new).toList();
    try (Ranks ranks = new Ranks(nranks)) {
      if (layout == RankLayout.ONE_THREAD) {
        for (int i = 0; i < cases.size(); i++) {
          together(ranks, cases.get(i), oracles.get(i));
        }
      } else {
        ranks.communicators.run(
            communicator -> {
              Stream stream = ranks.streams.get(communicator.rank());
              for (int i = 0; i < cases.size(); i++) {
                Case c = cases.get(i);
                // On the last rank plain, on the others captured.
                boolean plain =
                    TestBackend.mixesGraphsWithCalls()
                        && communicator.rank() == nranks - 1
                        && i % 2 == 1;
                try (CaseRunner runner = new CaseRunner(c, oracles.get(i), communicator);
                    ExecutableGraph graph = executable(stream, () -> runner.submit(stream))) {
                  for (int round = 0; round < 3; round++) {
                    runner.reset();
                    if (plain) {
                      runner.submit(stream);
                    } else {
                      graph.launch(stream);
                    }
                    stream.synchronize();
                    check(c, runner);
                  }
                }
              }
            });
      }
    }
  }

  private static void together(Ranks ranks, Case c, Oracle oracle) {
    List<CaseRunner> runners = new ArrayList<>();
    List<ExecutableGraph> graphs = new ArrayList<>();
    try {
      for (int rank = 0; rank < ranks.size(); rank++) {
        Stream stream = ranks.streams.get(rank);
        CaseRunner runner = new CaseRunner(c, oracle, ranks.get(rank));
        runners.add(runner);
        graphs.add(executable(stream, () -> runner.submit(stream)));
      }
      for (int round = 0; round < 2; round++) {
        runners.forEach(CaseRunner::reset);
        for (int rank = 0; rank < ranks.size(); rank++) {
          graphs.get(rank).launch(ranks.streams.get(rank));
        }
        ranks.synchronize();
        runners.forEach(runner -> check(c, runner));
      }
    } finally {
      graphs.forEach(ExecutableGraph::close);
      runners.forEach(CaseRunner::close);
    }
  }

  private static void check(Case c, CaseRunner runner) {
    try {
      runner.check();
    } catch (AssertionError e) {
      throw new AssertionError(c + ": " + e.getMessage(), e);
    }
  }

  @Test
  void nothingRunsWhileCapturing() {
    try (Ranks ranks = new Ranks(2)) {
      ranks.put(0, 1);
      ranks.put(1, 2);
      ranks.out.get(0).copyFrom(new int[] {-1});
      Stream stream = ranks.streams.get(0);
      assertFalse(stream.isCapturing());
      stream.beginCapture();
      assertTrue(stream.isCapturing());
      ranks.sum(0, 1);
      stream.fill(ranks.out.get(0), (byte) 0);
      try (Graph graph = stream.endCapture()) {
        assertFalse(stream.isCapturing());
        assertEquals(2, graph.nodeCount());
      }
      stream.synchronize();
      assertEquals(-1, ranks.got(0, 1)[0]);
      ranks.assertUsable();
    }
  }

  @Test
  void anEmptyGraphRuns() {
    try (Ranks ranks = new Ranks(1)) {
      Stream stream = ranks.streams.get(0);
      try (ExecutableGraph graph = executable(stream, () -> {})) {
        for (int i = 0; i < 3000; i++) {
          graph.launch(stream);
        }
        stream.synchronize();
      }
      ranks.assertUsable();
    }
  }

  @Test
  void copiesAndFillsOfAllKinds() {
    try (Ranks ranks = new Ranks(1)) {
      Stream stream = ranks.streams.get(0);
      try (PinnedBuffer from = ranks.get(0).device().allocatePinned(64);
          PinnedBuffer to = ranks.get(0).device().allocatePinned(64)) {
        DeviceBuffer first = ranks.in.get(0).slice(0, 64);
        DeviceBuffer second = ranks.out.get(0).slice(0, 64);
        try (ExecutableGraph graph =
            executable(
                stream,
                () -> {
                  stream.copy(first, from);
                  stream.copy(second, first);
                  stream.fill(second.slice(60, 4), (byte) 9);
                  stream.copy(to, second);
                })) {
          for (int round = 1; round <= 5; round++) {
            from.segment().fill((byte) round);
            graph.launch(stream);
            stream.synchronize();
            byte[] got = to.segment().toArray(java.lang.foreign.ValueLayout.JAVA_BYTE);
            for (int i = 0; i < 64; i++) {
              assertEquals(i < 60 ? round : 9, got[i], "byte " + i);
            }
          }
        }
      }
    }
  }

  /** A capture takes no room in the stream, even if that has none. */
  @Test
  void captureOnAFullStream() throws Exception {
    try (Ranks ranks = new Ranks(2)) {
      int copies = TestBackend.BACKEND == Backend.HOST ? 1023 : 255;
      put(ranks.in.get(0), 1, 5);
      Stream stream = ranks.streams.get(0);
      ranks.sum(0, 1);
      put(ranks.in.get(0).slice(4096), 8, 7);
      for (int i = 0; i < copies; i++) {
        long at = 4096 + 16L * i;
        stream.copy(ranks.out.get(0).slice(at, 16), ranks.in.get(0).slice(4096, 16));
      }
      put(ranks.in.get(0).slice(64), 4, 3);
      try (ExecutableGraph graph =
          executable(
              stream,
              () -> {
                stream.fill(ranks.in.get(0).slice(128, 16), (byte) 1);
                stream.copy(ranks.out.get(0).slice(64, 16), ranks.in.get(0).slice(64, 16));
              })) {
        put(ranks.in.get(1), 1, 6);
        ranks.sum(1, 1);
        ranks.synchronize();
        assertEquals(11, ranks.got(0, 1)[0]);
        assertHolds(ranks.out.get(0).slice(4096), 4 * copies, 7);
        graph.launch(stream);
        stream.synchronize();
        assertHolds(ranks.out.get(0).slice(64), 4, 3);
      }
    }
  }

  // ---- several streams

  /** Two branches that meet again: the last step sees what both have done. */
  @Test
  void branchesOfJoinedStreams() throws Exception {
    try (Ranks ranks = new Ranks(2)) {
      ranks.communicators.run(
          communicator -> {
            int rank = communicator.rank();
            DeviceBuffer in = ranks.in.get(rank);
            DeviceBuffer out = ranks.out.get(rank);
            DeviceBuffer sum = out.slice(0, MANY * INT);
            DeviceBuffer copy = out.slice(MANY * INT, MANY * INT);
            DeviceBuffer end = out.slice(2 * MANY * INT, 2 * MANY * INT);
            Stream stream = ranks.streams.get(rank);
            try (Stream branch = communicator.device().newStream();
                Event fork = communicator.device().newEvent();
                Event join = communicator.device().newEvent();
                ExecutableGraph graph =
                    executable(
                        stream,
                        () -> {
                          stream.fill(out, (byte) 0);
                          stream.record(fork);
                          branch.waitFor(fork);
                          assertTrue(branch.isCapturing());
                          branch.copy(copy, in.slice(0, MANY * INT));
                          branch.record(join);
                          communicator.allReduce(
                              in, sum, MANY, DataType.INT32, ReduceOp.SUM, stream);
                          stream.waitFor(join);
                          communicator.allReduce(
                              out, end, 2 * MANY, DataType.INT32, ReduceOp.SUM, stream);
                        })) {
              assertFalse(branch.isCapturing());
              for (int round = 1; round < 20; round++) {
                put(in, MANY, round * (rank + 1));
                graph.launch(round % 2 == 0 ? stream : branch);
                stream.synchronize();
                branch.synchronize();
                assertHolds(sum, MANY, 3 * round);
                assertHolds(end, MANY, 6 * round);
                assertHolds(end.slice(MANY * INT), MANY, 3 * round);
              }
            }
          });
    }
  }

  /** In one stream these would wait for each other; as branches they must not. */
  @ParameterizedTest
  @ValueSource(ints = {2, MANY, 200_000})
  void branchesInOppositeOrderDoNotWaitForEachOther(int count) throws Exception {
    try (Ranks a = new Ranks(2);
        Ranks b = new Ranks(2)) {
      a.communicators.run(
          communicator -> {
            int rank = communicator.rank();
            Stream stream = a.streams.get(rank);
            Ranks first = rank == 0 ? a : b;
            Ranks second = rank == 0 ? b : a;
            try (Stream branch = communicator.device().newStream();
                Event fork = communicator.device().newEvent();
                Event join = communicator.device().newEvent();
                ExecutableGraph graph =
                    executable(
                        stream,
                        () -> {
                          stream.record(fork);
                          branch.waitFor(fork);
                          first.sum(rank, count, stream);
                          second.sum(rank, count, branch);
                          branch.record(join);
                          stream.waitFor(join);
                        })) {
              for (int round = 0; round < 50; round++) {
                put(a.in.get(rank), count, round + rank);
                put(b.in.get(rank), count, -round - rank);
                graph.launch(stream);
                stream.synchronize();
                assertHolds(a.out.get(rank), count, 2 * round + 1);
                assertHolds(b.out.get(rank), count, -2 * round - 1);
              }
              for (int i = 0; i < 100; i++) {
                graph.launch(stream);
              }
              stream.synchronize();
            }
          });
    }
  }

  /** One thread captures all ranks' streams into one graph. */
  @Test
  void oneGraphOfSeveralRanks() {
    int n = 3;
    try (Ranks ranks = new Ranks(n)) {
      List<Event> events = new ArrayList<>();
      for (int rank = 0; rank < n; rank++) {
        events.add(ranks.get(rank).device().newEvent());
      }
      Stream origin = ranks.streams.get(0);
      try (ExecutableGraph graph =
          executable(
              origin,
              () -> {
                origin.record(events.get(0));
                for (int rank = 1; rank < n; rank++) {
                  ranks.streams.get(rank).waitFor(events.get(0));
                }
                for (int rank = 0; rank < n; rank++) {
                  ranks.sum(rank, MANY);
                }
                for (int rank = 1; rank < n; rank++) {
                  ranks.streams.get(rank).record(events.get(rank));
                  origin.waitFor(events.get(rank));
                }
              })) {
        for (int round = 0; round < 30; round++) {
          for (int rank = 0; rank < n; rank++) {
            put(ranks.in.get(rank), MANY, round + rank);
          }
          graph.launch(origin);
          origin.synchronize();
          for (int rank = 0; rank < n; rank++) {
            assertHolds(ranks.out.get(rank), MANY, 3 * round + 3);
          }
        }
      }
      events.forEach(Event::close);
      ranks.assertUsable();
    }
  }

  /** Operations of a group count in the order of their calls, whatever streams they are put in. */
  @Test
  void aGroupOverTwoStreamsHasTheOrderOfItsCalls() throws Exception {
    try (Ranks ranks = new Ranks(2)) {
      ranks.communicators.run(
          communicator -> {
            int rank = communicator.rank();
            DeviceBuffer in = ranks.in.get(rank);
            DeviceBuffer out = ranks.out.get(rank);
            Stream stream = ranks.streams.get(rank);
            try (Stream branch = communicator.device().newStream();
                Event fork = communicator.device().newEvent();
                Event join = communicator.device().newEvent()) {
              Runnable calls =
                  () -> {
                    stream.record(fork);
                    branch.waitFor(fork);
                    Group.run(
                        () -> {
                          for (int i = 1; i < 6; i++) {
                            communicator.allReduce(
                                in,
                                out.slice(4096L * i),
                                i,
                                DataType.INT32,
                                ReduceOp.SUM,
                                i % 2 == 0 ? branch : stream);
                          }
                        });
                    branch.record(join);
                    stream.waitFor(join);
                  };
              put(in, 5, rank + 1);
              try (ExecutableGraph graph = executable(stream, calls)) {
                for (int round = 0; round < 10; round++) {
                  stream.fill(out, (byte) 0);
                  if (rank == 0) {
                    graph.launch(stream);
                  } else {
                    calls.run();
                  }
                  stream.synchronize();
                  for (int i = 1; i < 6; i++) {
                    assertHolds(out.slice(4096L * i), i, 3);
                    assertHolds(out.slice(4096L * i + 4L * i), 1, 0);
                  }
                }
              }
            }
          });
    }
  }

  // ---- launches

  /** Each addition depends on the one before, so that none may be lost, doubled or out of order. */
  @ParameterizedTest
  @ValueSource(ints = {2, 3000})
  void launchesMixWithPlainCallsAndOtherGraphs(int count) throws Exception {
    int rounds = 2000;
    try (Ranks ranks = new Ranks(2)) {
      ranks.communicators.run(
          communicator -> {
            int rank = communicator.rank();
            DeviceBuffer buffer = ranks.in.get(rank).slice(0, (long) count * INT);
            put(buffer, count, 1);
            Stream stream = ranks.streams.get(rank);
            Runnable sum =
                () ->
                    communicator.allReduce(
                        buffer, buffer, count, DataType.INT32, ReduceOp.SUM, stream);
            Runnable average =
                () ->
                    communicator.allReduce(
                        buffer, buffer, count, DataType.INT32, ReduceOp.AVG, stream);
            Runnable both =
                () -> {
                  sum.run();
                  stream.fill(buffer, (byte) 0);
                  average.run();
                  stream.fill(buffer, (byte) 1);
                };
            try (ExecutableGraph one = executable(stream, sum);
                ExecutableGraph other = executable(stream, both)) {
              for (int i = 0; i < rounds; i++) {
                // Each rank takes another way to the same operations.
                int way = (i / 7 + rank) % 3;
                if (i % 5 == 4) {
                  if (way == 0) {
                    both.run();
                  } else {
                    other.launch(stream);
                  }
                } else if (way == 1) {
                  sum.run();
                } else {
                  one.launch(stream);
                }
              }
              sum.run();
              stream.synchronize();
              assertHolds(buffer, count, 0x02020202);
            }
          });
    }
  }

  /** Launches of one graph keep their order also over streams. */
  @Test
  void launchesOnSeveralStreamsRunOneAfterTheOther() throws Exception {
    int launches = 2000;
    try (Ranks ranks = new Ranks(2)) {
      ranks.communicators.run(
          communicator -> {
            int rank = communicator.rank();
            // The number is doubled by each launch: only one after the other does this come out.
            DeviceBuffer buffer = ranks.in.get(rank).slice(0, 8);
            buffer.copyFrom(new int[] {1, 0});
            DeviceBuffer one = buffer.slice(0, 4);
            DeviceBuffer number = buffer.slice(4, 4);
            DeviceBuffer scratch = ranks.out.get(rank).slice(0, 4);
            Stream stream = ranks.streams.get(rank);
            try (Stream second = communicator.device().newStream();
                Stream third = communicator.device().newStream();
                ExecutableGraph graph =
                    executable(
                        stream,
                        () -> {
                          communicator.allReduce(
                              number, scratch, 1, DataType.INT32, ReduceOp.SUM, stream);
                          stream.copy(number, scratch);
                          if (rank == 1) {
                            stream.copy(scratch, one);
                          } else {
                            stream.fill(scratch, (byte) 0);
                          }
                          communicator.reduce(
                              scratch, scratch, 1, DataType.INT32, ReduceOp.SUM, 0, stream);
                          communicator.broadcast(scratch, scratch, 1, DataType.INT32, 0, stream);
                          communicator.allReduce(
                              number, number, 1, DataType.INT32, ReduceOp.MAX, stream);
                        })) {
              Stream[] streams = {stream, second, third};
              for (int i = 0; i < launches; i++) {
                if (i % 10 == 0) {
                  for (Stream each : streams) {
                    each.synchronize();
                  }
                  assertEquals(i == 0 ? 0 : 1 << 10, number.toInts()[0]);
                  number.copyFrom(new int[] {1});
                }
                graph.launch(streams[(i + rank) % 3]);
              }
              for (Stream each : streams) {
                each.synchronize();
              }
              assertEquals(1, scratch.toInts()[0]);
            }
          });
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {8, MANY, 100_000})
  void exchangesInGroups(int count) throws Exception {
    int n = 3;
    try (Ranks ranks = new Ranks(n)) {
      ranks.communicators.run(
          communicator -> {
            int rank = communicator.rank();
            Stream stream = ranks.streams.get(rank);
            DeviceBuffer in = ranks.in.get(rank);
            DeviceBuffer out = ranks.out.get(rank);
            long bytes = (long) count * INT;
            Runnable ring =
                () ->
                    Group.run(
                        () -> {
                          communicator.send(in, count, DataType.INT32, (rank + 1) % n, stream);
                          communicator.recv(out, count, DataType.INT32, (rank + 2) % n, stream);
                        });
            Runnable back =
                () ->
                    Group.run(
                        () -> {
                          communicator.send(out, count, DataType.INT32, (rank + 2) % n, stream);
                          communicator.recv(
                              out.slice(bytes), count, DataType.INT32, (rank + 1) % n, stream);
                        });
            try (ExecutableGraph graph =
                executable(
                    stream,
                    () -> {
                      ring.run();
                      back.run();
                    })) {
              for (int round = 0; round < 40; round++) {
                put(in, count, 10 * round + rank);
                // Each rank alternates in its own way; where that is not allowed, as rank 0 does.
                int turn = TestBackend.mixesGraphsWithCalls() ? rank : 0;
                if ((round / 4 & 1 << turn) == 0) {
                  graph.launch(stream);
                } else {
                  ring.run();
                  back.run();
                }
                stream.synchronize();
                assertHolds(out, count, 10 * round + (rank + 2) % n);
                assertHolds(out.slice(bytes), count, 10 * round + rank);
              }
            }
          });
    }
  }

  /** Small messages are complete for the sender at once; a dozen fills the lane. */
  @Test
  void oneWayMessagesInAGraph() throws Exception {
    int messages = 12;
    try (Ranks ranks = new Ranks(2)) {
      ranks.communicators.run(
          communicator -> {
            int rank = communicator.rank();
            Stream stream = ranks.streams.get(rank);
            try (ExecutableGraph graph =
                executable(
                    stream,
                    () -> {
                      for (int i = 0; i < messages; i++) {
                        if (rank == 0) {
                          DeviceBuffer from = ranks.in.get(0).slice(4L * i, 4);
                          communicator.send(from, 1, DataType.INT32, 1, stream);
                        } else {
                          DeviceBuffer to = ranks.out.get(1).slice(4L * i, 4);
                          communicator.recv(to, 1, DataType.INT32, 0, stream);
                        }
                      }
                    })) {
              int[] values = new int[messages];
              for (int i = 0; i < messages; i++) {
                values[i] = i * i;
              }
              ranks.put(rank, values);
              for (int i = 0; i < 1000; i++) {
                graph.launch(stream);
              }
              stream.synchronize();
              if (rank == 1) {
                assertArrayEquals(values, ranks.got(1, messages));
              }
            }
          });
    }
  }

  /** A graph and each of its executables go their own ways. */
  @Test
  void executablesOfOneGraphAreIndependent() {
    try (Ranks ranks = new Ranks(1)) {
      Stream stream = ranks.streams.get(0);
      Graph graph = capture(stream, () -> ranks.sum(0, 1));
      ExecutableGraph one = graph.instantiate();
      ExecutableGraph other = graph.instantiate();
      graph.close();
      graph.close();
      assertRefused("closed", graph::instantiate);
      one.close();
      one.close();
      assertRefused("closed", () -> one.launch(stream));
      ranks.put(0, 8);
      other.launch(stream);
      stream.synchronize();
      assertEquals(8, ranks.got(0, 1)[0]);
      other.close();
    }
  }

  // ---- update

  @Test
  void updateReplacesBuffersAndCounts() throws Exception {
    try (Ranks ranks = new Ranks(2)) {
      ranks.communicators.run(
          communicator -> {
            int rank = communicator.rank();
            Stream stream = ranks.streams.get(rank);
            DeviceBuffer in = ranks.in.get(rank);
            DeviceBuffer out = ranks.out.get(rank);
            put(in, MANY, rank + 1);
            try (ExecutableGraph graph = executable(stream, () -> step(ranks, rank, 0, 1))) {
              for (int round = 0; round < 100; round++) {
                int count = 1 + round * round;
                long at = 64L * round;
                stream.fill(out, (byte) 0);
                stream.synchronize();
                try (Graph other = capture(stream, () -> step(ranks, rank, at, count))) {
                  graph.update(other);
                }
                graph.launch(stream);
                stream.synchronize();
                assertHolds(out.slice(at), count, 3);
                assertHolds(out.slice(at + 4L * count), 1, 0);
                assertHolds(in.slice(512 << 10), 16, 0x01010101 * (round % 100));
              }
            }
          });
    }
  }

  private static void step(Ranks ranks, int rank, long at, int count) {
    Stream stream = ranks.streams.get(rank);
    ranks
        .get(rank)
        .allReduce(
            ranks.in.get(rank),
            ranks.out.get(rank).slice(at),
            count,
            DataType.INT32,
            ReduceOp.SUM,
            stream);
    stream.fill(ranks.in.get(rank).slice(512 << 10, 64), (byte) (at / 64));
  }

  @Test
  void updateIsRefusedForOtherWork() {
    try (Ranks ranks = new Ranks(2);
        Ranks others = new Ranks(2)) {
      Stream stream = ranks.streams.get(0);
      Communicator communicator = ranks.get(0);
      DeviceBuffer in = ranks.in.get(0);
      DeviceBuffer out = ranks.out.get(0);
      List<ExecutableGraph> graphs = sums(ranks, 3);
      ExecutableGraph graph = graphs.get(0);
      assertNoUpdate(graph, stream, "0 nodes", () -> {});
      assertNoUpdate(graph, stream, "another kind of step", () -> stream.fill(out, (byte) 1));
      assertNoUpdate(
          graph,
          stream,
          "2 nodes",
          () -> {
            ranks.sum(0, 3);
            ranks.sum(0, 3);
          });
      assertNoUpdate(graph, stream, "communicator", () -> others.sum(0, 3, stream));
      assertNoUpdate(
          graph,
          stream,
          "type, reduction or root",
          () -> communicator.allReduce(in, out, 3, DataType.FLOAT32, ReduceOp.SUM, stream));
      assertNoUpdate(
          graph,
          stream,
          "type, reduction or root",
          () -> communicator.allReduce(in, out, 3, DataType.INT32, ReduceOp.MAX, stream));
      assertNoUpdate(
          graph,
          stream,
          "reduceScatter",
          () -> communicator.reduceScatter(in, out, 3, DataType.INT32, ReduceOp.SUM, stream));
      assertNoUpdate(
          graph,
          stream,
          "2 operations",
          () ->
              Group.run(
                  () -> {
                    ranks.sum(0, 3);
                    ranks.sum(0, 3);
                  }));
      // It still does what it did.
      ranks.put(0, 1, 2, 3, 4);
      ranks.put(1, 10, 20, 30, 40);
      graph.launch(stream);
      graphs.get(1).launch(ranks.streams.get(1));
      ranks.synchronize();
      assertArrayEquals(new int[] {11, 22, 33}, ranks.got(0, 3));
      graphs.forEach(ExecutableGraph::close);
      try (Graph same = capture(stream, () -> ranks.sum(0, 3))) {
        assertRefused("closed", () -> graph.update(same));
      }
      others.assertUsable();
    }
  }

  private static void assertNoUpdate(
      ExecutableGraph graph, Stream stream, String word, Runnable calls) {
    try (Graph other = capture(stream, calls)) {
      InvalidArgumentException e =
          assertThrows(InvalidArgumentException.class, () -> graph.update(other));
      assertTrue(e.getMessage().contains(word), e::getMessage);
    }
  }

  @Test
  void updateLooksAtTheOrderOfBranches() {
    try (Ranks ranks = new Ranks(1);
        Stream branch = ranks.get(0).device().newStream();
        Event fork = ranks.get(0).device().newEvent();
        Event join = ranks.get(0).device().newEvent()) {
      Stream stream = ranks.streams.get(0);
      DeviceBuffer a = ranks.in.get(0);
      DeviceBuffer b = ranks.out.get(0);
      Runnable serial =
          () -> {
            stream.fill(a, (byte) 1);
            stream.fill(b, (byte) 1);
          };
      Runnable parallel =
          () -> {
            stream.record(fork);
            branch.waitFor(fork);
            stream.fill(a, (byte) 1);
            branch.fill(b, (byte) 1);
            branch.record(join);
            stream.waitFor(join);
          };
      try (ExecutableGraph graph = executable(stream, serial)) {
        assertNoUpdate(graph, stream, "comes after other steps", parallel);
      }
    }
  }

  @Test
  void updateOfAClosedGraphOrOfNullIsRefused() {
    try (Ranks ranks = new Ranks(1)) {
      Stream stream = ranks.streams.get(0);
      try (ExecutableGraph graph = executable(stream, () -> ranks.sum(0, 1))) {
        Graph closed = capture(stream, () -> ranks.sum(0, 1));
        closed.close();
        assertRefused("closed", () -> graph.update(closed));
        assertThrows(InvalidArgumentException.class, () -> graph.update(null));
        assertThrows(InvalidArgumentException.class, () -> graph.launch(null));
      }
    }
  }

  @Test
  void updateAndCloseWaitForLaunches() throws Exception {
    try (Ranks ranks = new Ranks(2)) {
      List<ExecutableGraph> graphs = sums(ranks, MANY);
      ranks.communicators.run(
          communicator -> {
            int rank = communicator.rank();
            Stream stream = ranks.streams.get(rank);
            ExecutableGraph graph = graphs.get(rank);
            put(ranks.in.get(rank), MANY, rank + 1);
            if (rank == 1) {
              pause(50);
            }
            graph.launch(stream);
            try (Graph other = capture(stream, () -> ranks.sum(rank, 1))) {
              graph.update(other);
            }
            assertTrue(stream.query());
            assertHolds(ranks.out.get(rank), MANY, 3);
            if (rank == 0) {
              pause(50);
            }
            put(ranks.in.get(rank), 1, 5);
            graph.launch(stream);
            graph.close();
            assertTrue(stream.query());
            assertHolds(ranks.out.get(rank), 1, 10);
          });
    }
  }

  // ---- what is refused

  /** An open capture does not keep try-with-resources from releasing the stream. */
  @Test
  void closingTheStreamGivesItsCaptureUp() {
    try (Ranks ranks = new Ranks(2);
        Stream joined = ranks.get(0).device().newStream();
        Event event = ranks.get(0).device().newEvent()) {
      Stream stream = ranks.get(0).device().newStream();
      stream.fill(ranks.out.get(0), (byte) 7);
      stream.beginCapture();
      stream.fill(ranks.out.get(0), (byte) 1);
      stream.record(event);
      joined.waitFor(event);
      assertTrue(joined.isCapturing());
      stream.close();
      assertFalse(joined.isCapturing());
      // What was queued before is complete, what was captured has not run.
      assertEquals(0x07070707, ranks.got(0, 1)[0]);
      assertRefused("closed", stream::endCapture);
      assertRefused("ended", () -> joined.waitFor(event));
      joined.fill(ranks.out.get(0), (byte) 3);
      joined.synchronize();
      assertEquals(0x03030303, ranks.got(0, 1)[0]);
      ranks.assertUsable();
    }
  }

  /**
   * A stream that joined may be closed once it is joined back; before, its work would be missed.
   */
  @ParameterizedTest
  @ValueSource(booleans = {true, false})
  void aJoinedStreamLeavesTheCaptureWhenItIsClosed(boolean joinedBack) {
    try (Ranks ranks = new Ranks(1);
        Event event = ranks.get(0).device().newEvent()) {
      Stream stream = ranks.streams.get(0);
      stream.beginCapture();
      stream.record(event);
      Stream joined = ranks.get(0).device().newStream();
      joined.waitFor(event);
      joined.fill(ranks.out.get(0), (byte) 5);
      joined.record(event);
      if (joinedBack) {
        stream.waitFor(event);
      }
      joined.close();
      if (!joinedBack) {
        assertRefused("not joined back", stream::endCapture);
        return;
      }
      try (Graph graph = stream.endCapture();
          ExecutableGraph executable = graph.instantiate()) {
        executable.launch(stream);
        stream.synchronize();
      }
      assertEquals(0x05050505, ranks.got(0, 1)[0]);
    }
  }

  @Test
  void aLaunchOnAnotherDeviceIsRefused() {
    try (Ranks ranks = new Ranks(2);
        ExecutableGraph graph = executable(ranks.streams.get(0), () -> ranks.sum(0, 1))) {
      Assumptions.assumeTrue(
          ranks.get(0).device() != ranks.get(1).device(), "there is one GPU only");
      long before = ranks.get(0).counters().collectives();
      InvalidArgumentException e =
          assertThrows(InvalidArgumentException.class, () -> graph.launch(ranks.streams.get(1)));
      assertTrue(
          e.getMessage().contains("captured on " + TestBackend.BACKEND.label() + " device 0"),
          e.getMessage());
      assertEquals(before, ranks.get(0).counters().collectives());
      ranks.assertUsable();
    }
  }

  @Test
  void whatCannotBeCaptured() {
    try (Ranks ranks = new Ranks(2);
        Stream plain = ranks.get(0).device().newStream()) {
      Stream stream = ranks.streams.get(0);
      List<ExecutableGraph> graphs = sums(ranks, 2);
      assertRefused("not being captured", stream::endCapture);
      stream.beginCapture();
      assertRefused("captured", stream::beginCapture);
      assertRefused("captured", stream::synchronize);
      assertRefused("captured", () -> stream.synchronize(Duration.ofSeconds(1)));
      assertRefused("captured", stream::query);
      assertRefused("captured", () -> graphs.get(0).launch(stream));
      // What was refused is no part of it, and what is wrong is refused as it always is.
      assertThrows(InvalidArgumentException.class, () -> ranks.sum(0, -1));
      ranks.sum(0, 2);
      // Other streams are not affected.
      plain.fill(ranks.out.get(0), (byte) 7);
      plain.synchronize();
      assertEquals(0x07070707, ranks.got(0, 1)[0]);
      try (Graph graph = stream.endCapture()) {
        assertEquals(1, graph.nodeCount());
      }
      for (int rank = 0; rank < 2; rank++) {
        ranks.put(rank, rank + 1, 0);
        graphs.get(rank).launch(ranks.streams.get(rank));
      }
      ranks.synchronize();
      assertArrayEquals(new int[] {3, 0}, ranks.got(0, 2));
      graphs.forEach(ExecutableGraph::close);
      ranks.assertUsable();
    }
  }

  @Test
  void eventsThatDoNotBelongToTheCapture() {
    try (Ranks ranks = new Ranks(1);
        Stream second = ranks.get(0).device().newStream();
        Stream third = ranks.get(0).device().newStream();
        Event outside = ranks.get(0).device().newEvent();
        Event inside = ranks.get(0).device().newEvent();
        Event foreign = ranks.get(0).device().newEvent()) {
      Stream stream = ranks.streams.get(0);
      third.record(outside);
      stream.beginCapture();
      assertRefused("outside the capture", () -> stream.waitFor(outside));
      third.beginCapture();
      third.record(foreign);
      assertRefused("another capture", () -> stream.waitFor(foreign));
      try (Graph graph = third.endCapture()) {
        assertEquals(0, graph.nodeCount());
      }
      stream.record(inside);
      // Nothing is recorded that one could wait for.
      assertRefused("capture", inside::synchronize);
      assertRefused("capture", inside::isComplete);
      assertRefused("capture", inside::toFuture);
      second.waitFor(inside);
      assertTrue(second.isCapturing());
      assertRefused("captured", second::synchronize);
      assertRefused("captured", second::beginCapture);
      assertRefused("began on another stream", second::endCapture);
      stream.endCapture().close();
      assertFalse(second.isCapturing());
      assertRefused("has ended", () -> second.waitFor(inside));
      stream.record(inside);
      second.waitFor(inside);
      inside.synchronize();
      assertTrue(inside.isComplete());
      second.synchronize();
      ranks.assertUsable();
    }
  }

  @Test
  void aStreamThatIsNotJoinedBackGivesTheCaptureUp() {
    try (Ranks ranks = new Ranks(1);
        Stream second = ranks.get(0).device().newStream();
        Event event = ranks.get(0).device().newEvent()) {
      Stream stream = ranks.streams.get(0);
      stream.beginCapture();
      ranks.sum(0, 1);
      stream.record(event);
      second.waitFor(event);
      second.fill(ranks.out.get(0), (byte) 1);
      assertRefused("not joined back", stream::endCapture);
      assertFalse(stream.isCapturing());
      assertFalse(second.isCapturing());
      second.synchronize();
      assertRefused("not being captured", stream::endCapture);
      ranks.assertUsable();
    }
  }

  @Test
  @SuppressWarnings("try")
  void groupsAndCapturesNest() {
    try (Ranks ranks = new Ranks(2);
        Stream second = ranks.get(0).device().newStream();
        Event event = ranks.get(0).device().newEvent()) {
      Stream stream = ranks.streams.get(0);
      List<ExecutableGraph> graphs = sums(ranks, 2);
      try (Group group = Group.start()) {
        assertRefused("group", stream::beginCapture);
        assertRefused("group", () -> graphs.get(0).launch(stream));
      }
      stream.beginCapture();
      ranks.sum(0, 1);
      try (Group group = Group.start()) {
        ranks.sum(0, 5);
        ranks.sum(0, 6);
        assertRefused("group", stream::endCapture);
      }
      stream.record(event);
      // A stream that joins while its operations wait for the group's launch.
      try (Group group = Group.start()) {
        ranks.sum(0, 7, second);
        second.waitFor(event);
        assertRefused("capture", group::launch);
      }
      // The discarded ones are not in it.
      try (Graph graph = stream.endCapture()) {
        assertEquals(1, graph.nodeCount());
        try (ExecutableGraph other = graph.instantiate()) {
          ranks.put(0, 4);
          ranks.put(1, 5);
          ranks.sum(1, 1);
          other.launch(stream);
          ranks.synchronize();
          assertEquals(9, ranks.got(0, 1)[0]);
        }
      }
      assertFalse(second.isCapturing());
      graphs.forEach(ExecutableGraph::close);
      ranks.assertUsable();
    }
  }

  // ---- what is closed or has failed

  @Test
  void aClosedBufferIsRefusedAtLaunch() {
    try (Ranks ranks = new Ranks(2)) {
      Stream stream = ranks.streams.get(0);
      DeviceBuffer buffer = ranks.get(0).device().allocate(4096);
      DeviceBuffer slice = buffer.slice(1024, 64);
      ExecutableGraph sum =
          executable(
              stream,
              () -> ranks.get(0).allReduce(slice, slice, 4, DataType.INT32, ReduceOp.SUM, stream));
      ExecutableGraph fill = executable(stream, () -> stream.fill(slice, (byte) 1));
      ExecutableGraph other = executable(stream, () -> ranks.sum(0, 4));
      fill.launch(stream);
      sum.launch(stream);
      // What is under way goes on with its memory.
      buffer.close();
      ranks.sum(1, 4);
      ranks.synchronize();
      assertRefused("buffer in the graph is closed", () -> sum.launch(stream));
      assertRefused("buffer in the graph is closed", () -> fill.launch(stream));
      // Nothing was started, and another capture puts it right.
      try (Graph graph = capture(stream, () -> ranks.sum(0, 2))) {
        sum.update(graph);
      }
      ranks.put(0, 1, 2);
      ranks.put(1, 3, 4);
      sum.launch(stream);
      ranks.sum(1, 2);
      ranks.synchronize();
      assertArrayEquals(new int[] {4, 6}, ranks.got(0, 2));
      List.of(sum, fill, other).forEach(ExecutableGraph::close);
      ranks.assertUsable();
    }
  }

  /** Memory of the program's own that is gone when the graph runs: the stream fails, no more. */
  @Test
  void closedMemoryFailsTheStreamOfEachLaunch() {
    TestBackend.requireHost("CUDA reaches no memory of arenas");
    try (Ranks ranks = new Ranks(1);
        Stream second = ranks.get(0).device().newStream();
        Stream third = ranks.get(0).device().newStream()) {
      Arena arena = Arena.ofShared();
      DeviceBuffer wrapped = ranks.get(0).device().wrap(arena.allocate(64, 64));
      Stream stream = ranks.streams.get(0);
      ExecutableGraph graph =
          executable(
              second,
              () -> {
                second.fill(wrapped, (byte) 1);
                second.fill(ranks.out.get(0), (byte) 1);
              });
      graph.launch(second);
      second.synchronize();
      arena.close();
      graph.launch(second);
      assertRefused("memory was closed", second::synchronize);
      graph.launch(third);
      assertRefused("memory was closed", third::synchronize);
      assertRefused("memory was closed", () -> graph.launch(third));
      try (Graph other =
          capture(
              stream,
              () -> {
                stream.fill(ranks.in.get(0), (byte) 2);
                stream.fill(ranks.out.get(0), (byte) 3);
              })) {
        graph.update(other);
      }
      graph.launch(stream);
      graph.close();
      assertEquals(0x03030303, ranks.got(0, 1)[0]);
      ranks.assertUsable();
    }
  }

  @Test
  void aClosedCommunicatorIsRefusedAtLaunch() {
    try (Ranks ranks = new Ranks(2);
        Ranks others = new Ranks(2)) {
      Stream stream = others.streams.get(0);
      ExecutableGraph graph =
          executable(
              stream,
              () -> {
                others.sum(0, 1);
                ranks.sum(0, 1, stream);
              });
      ranks.communicators.close();
      assertRefused("is closed", () -> graph.launch(stream));
      // The other communicator in it was not touched.
      others.assertUsable();
      graph.close();
    }
  }

  @Test
  void aFailedCommunicatorIsRefusedAtLaunch() {
    try (Ranks ranks = new Ranks(2)) {
      List<ExecutableGraph> graphs = sums(ranks, 1);
      ranks.get(1).abort();
      for (int rank = 0; rank < 2; rank++) {
        int of = rank;
        AbortedException e =
            assertThrows(
                AbortedException.class, () -> graphs.get(of).launch(ranks.streams.get(of)));
        assertTrue(e.getMessage().contains("has failed"), e::getMessage);
      }
      graphs.forEach(ExecutableGraph::close);
    }
  }

  /** Closing what still runs waits for it. */
  @Test
  void closingACommunicatorCompletesItsGraphs() throws Exception {
    try (Ranks ranks = new Ranks(2)) {
      List<ExecutableGraph> graphs = sums(ranks, MANY);
      ranks.communicators.run(
          communicator -> {
            int rank = communicator.rank();
            put(ranks.in.get(rank), MANY, 4);
            for (int i = 0; i < 20; i++) {
              graphs.get(rank).launch(ranks.streams.get(rank));
            }
            communicator.close();
            assertTrue(ranks.streams.get(rank).query());
            assertHolds(ranks.out.get(rank), MANY, 8);
          });
      graphs.forEach(ExecutableGraph::close);
    }
  }

  @Test
  void aMismatchInAGraphNamesTheOperations() throws Exception {
    try (Ranks ranks = new Ranks(2)) {
      long before = ranks.get(0).counters().collectives();
      ExecutableGraph zero =
          executable(
              ranks.streams.get(0),
              () -> {
                ranks.sum(0, 100);
                ranks.sum(0, 5);
              });
      ExecutableGraph one =
          executable(
              ranks.streams.get(1),
              () -> {
                ranks.sum(1, 100);
                ranks
                    .get(1)
                    .allReduce(
                        ranks.in.get(1),
                        ranks.out.get(1),
                        6,
                        DataType.FLOAT32,
                        ReduceOp.MAX,
                        ranks.streams.get(1));
              });
      Throwable[] thrown =
          ranks.outcomes(
              communicator -> {
                int rank = communicator.rank();
                ExecutableGraph graph = rank == 0 ? zero : one;
                graph.launch(ranks.streams.get(rank));
                graph.launch(ranks.streams.get(rank));
                ranks.streams.get(rank).synchronize();
              });
      for (Throwable e : thrown) {
        assertInstanceOf(MismatchException.class, e);
        String message = e.getMessage();
        assertTrue(message.contains("allReduce(5 int32, sum)"), message);
        assertTrue(message.contains("allReduce(6 float, max)"), message);
        assertTrue(message.contains("#" + (before + 2)), message);
      }
      zero.close();
      one.close();
    }
  }

  @Test
  void anAbortReachesARunningGraph() {
    try (Ranks ranks = new Ranks(2)) {
      List<ExecutableGraph> graphs = sums(ranks, MANY);
      Stream stream = ranks.streams.get(0);
      graphs.get(0).launch(stream);
      graphs.get(0).launch(stream);
      ranks.get(1).abort();
      assertThrows(AbortedException.class, stream::synchronize);
      // It has ended, and waits for nothing any more.
      graphs.get(0).close();
      graphs.get(1).close();
      assertThrows(NcclException.class, stream::synchronize);
    }
  }

  @Test
  void aRankThatLeavesIsNamed() {
    try (Ranks ranks = new Ranks(2)) {
      List<ExecutableGraph> graphs = sums(ranks, 3);
      graphs.get(0).launch(ranks.streams.get(0));
      ranks.get(1).close();
      PeerFailedException e =
          assertThrows(PeerFailedException.class, ranks.streams.get(0)::synchronize);
      assertEquals(1, e.rank());
      assertTrue(e.getMessage().contains("allReduce(3 int32, sum)"), e::getMessage);
      graphs.forEach(ExecutableGraph::close);
    }
  }

  @Test
  void operationsInAGraphHaveTheDeadline() {
    CommunicatorConfig config =
        CommunicatorConfig.builder()
            .operationTimeout(Duration.ofMillis(150))
            .closeTimeout(Duration.ofSeconds(1))
            .build();
    try (Ranks ranks = new Ranks(2, config)) {
      List<ExecutableGraph> graphs = sums(ranks, 77);
      Stream stream = ranks.streams.get(0);
      graphs.get(0).launch(stream);
      DeadlineException soon =
          assertThrows(DeadlineException.class, () -> stream.synchronize(Duration.ofMillis(20)));
      assertTrue(soon.getMessage().contains("allReduce(77 int32, sum)"), soon::getMessage);
      DeadlineException e = assertThrows(DeadlineException.class, stream::synchronize);
      long number = ranks.get(0).counters().collectives();
      String operation = "allReduce(77 int32, sum) #" + number;
      assertTrue(e.getMessage().contains(operation), e::getMessage);
      assertTrue(e.getMessage().contains("rank 1"), e::getMessage);
      graphs.forEach(ExecutableGraph::close);
    }
  }

  // ---- anything in any order

  @ParameterizedTest
  @ValueSource(ints = {2, 3, 4})
  void randomSequences(int nranks) throws Exception {
    long seed = TestBackend.SEED + nranks;
    for (int i = 0; i < 6; i++) {
      runRandom(nranks, seed + 100L * i, true);
    }
  }

  /** Small ones show their data before their turn, unless they need what an earlier one writes. */
  @ParameterizedTest
  @ValueSource(ints = {2, 3, 4})
  void randomCalls(int nranks) throws Exception {
    runRandom(nranks, TestBackend.SEED + 31L * nranks, false);
  }

  /** The same over hosts, where small ones are sent before their turn. */
  @ParameterizedTest
  @CsvSource({
    "0 1, memory",
    "0 1 2, memory",
    "0 0 1 1, memory",
    "0 1 1 0 1, memory",
    "0 1, netty",
    "0 1 2, netty",
    "0 0 1 1, netty"
  })
  void randomCallsOverHosts(String hosts, String network) throws Exception {
    TestBackend.requireHost("no hosts");
    TestBackend.requireOneHost("these are hosts of their own");
    int[] hostOf = Pattern.compile(" ").splitAsStream(hosts).mapToInt(Integer::parseInt).toArray();
    for (boolean captures : new boolean[] {false, true}) {
      runRandom(
          new Ranks(TestBackend.overHosts(hostOf, TestBackend.CONFIG, network)),
          TestBackend.SEED + 17L * hostOf.length,
          captures);
    }
  }

  private static void runRandom(int nranks, long seed, boolean captures) throws Exception {
    runRandom(new Ranks(nranks), seed, captures);
  }

  private static void runRandom(Ranks on, long seed, boolean captures) throws Exception {
    int nranks = on.size();
    try (Ranks ranks = on) {
      ranks.communicators.run(
          communicator -> {
            try (RandomGraphs graphs = new RandomGraphs(communicator, seed, captures)) {
              graphs.run(captures ? 150 : 600);
            } catch (NcclException | AssertionError e) {
              throw new AssertionError(
                  "rank " + communicator.rank() + " of " + nranks + ", seed " + seed, e);
            }
          });
    }
  }

  // ---- processes

  @Tag("process")
  @Test
  void randomSequencesOfProcesses() throws Exception {
    TestBackend.requireRoomFor(3);
    String id = UniqueId.create(TestBackend.BACKEND).toString();
    List<Process> children = new ArrayList<>();
    try {
      for (int rank = 0; rank < 3; rank++) {
        ProcessBuilder builder = ProcessRanks.java(Child.class, Integer.toString(rank));
        builder.environment().put(ProcessRanks.ID, id);
        children.add(builder.start());
      }
      for (Process child : children) {
        String printed = new String(child.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        assertTrue(child.waitFor(50, TimeUnit.SECONDS));
        assertEquals(0, child.exitValue(), printed);
        assertTrue(printed.contains("all as expected"), printed);
      }
    } finally {
      children.forEach(Process::destroyForcibly);
    }
  }

  /** A process with one rank of 3. */
  static final class Child {
    private Child() {}

    public static void main(String[] arguments) {
      int rank = Integer.parseInt(arguments[0]);
      UniqueId id = UniqueId.parse(System.getenv(ProcessRanks.ID));
      try (Communicator communicator =
          Communicator.initRank(TestBackend.device(rank), 3, id, rank, TestBackend.CONFIG)) {
        for (int i = 0; i < 6; i++) {
          try (RandomGraphs graphs = new RandomGraphs(communicator, TestBackend.SEED + i, true)) {
            graphs.run(150);
          }
        }
      }
      System.out.println("all as expected");
    }
  }
}
