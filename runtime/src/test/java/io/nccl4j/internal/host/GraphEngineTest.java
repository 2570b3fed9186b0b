package io.nccl4j.internal.host;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ExecutableGraph;
import io.nccl4j.Graph;
import io.nccl4j.Group;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.PeerFailedException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.bootstrap.ChildJvm;
import io.nccl4j.internal.schedule.Work;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** What graphs take, how they count, and what others' deaths do to them. */
@Timeout(value = 60, threadMode = ThreadMode.SEPARATE_THREAD)
class GraphEngineTest {
  private static final int SMALLEST = 4096;

  /** What the calls put into the stream, as a graph. */
  static ExecutableGraph executable(Stream stream, Runnable calls) {
    stream.beginCapture();
    calls.run();
    try (Graph graph = stream.endCapture()) {
      return graph.instantiate();
    }
  }

  private static CommunicatorConfig fifoOf(long bytes) {
    return HostRanks.patient().fifoBytes(bytes).build();
  }

  // ---- the FIFO

  /** More operations than the FIFO has places, in one graph and in many launches. */
  @Test
  void launchesTakeNoRoomInTheFifo() throws Exception {
    int operations = 100;
    try (HostRanks ranks = new HostRanks(2, 64, fifoOf(SMALLEST))) {
      ranks.in.forEach(buffer -> buffer.copyFrom(new int[] {3}));
      ranks.run(
          rank -> {
            Stream stream = ranks.streams.get(rank);
            HostCommunicator communicator = ranks.get(rank);
            try (ExecutableGraph graph =
                executable(
                    stream,
                    () -> {
                      for (int i = 0; i < operations; i++) {
                        ranks.sum(rank, 1);
                      }
                      Group.run(
                          () -> {
                            communicator.send(
                                ranks.in.get(rank), 1, DataType.INT32, 1 - rank, stream);
                            communicator.recv(
                                ranks.out.get(rank), 1, DataType.INT32, 1 - rank, stream);
                          });
                    })) {
              for (int i = 0; i < 400; i++) {
                graph.launch(stream);
                assertEquals(0, communicator.fifo().inUse());
              }
              stream.synchronize();
            }
            assertEquals(0, communicator.fifo().highWaterBytes());
            assertEquals(3, ranks.out.get(rank).toInts()[0]);
            ranks.sum(rank, 1);
            stream.synchronize();
            assertEquals(Work.BYTES, communicator.fifo().highWaterBytes());
          });
    }
  }

  @ParameterizedTest
  @CsvSource({"1048576, false", "1048576, true", "4096, false", "4096, true"})
  void plainOperationsAfterACaptureGiveTheirRoomBack(long fifoBytes, boolean captureAgain)
      throws Exception {
    roomComesBack(fifoBytes, captureAgain, captureAgain ? 200 : 600);
  }

  @Tag("long")
  @ParameterizedTest
  @CsvSource({"1048576, false", "1048576, true", "4096, false", "4096, true"})
  void manyPlainOperationsAfterACaptureGiveTheirRoomBack(long fifoBytes, boolean captureAgain)
      throws Exception {
    roomComesBack(fifoBytes, captureAgain, captureAgain ? 4_000 : 20_000);
  }

  /**
   * A sequence that leaks in other libraries: plain operations, one captured, then plain ones of
   * another size without end. Room in the FIFO comes back after each.
   */
  private static void roomComesBack(long fifoBytes, boolean captureAgain, int rounds)
      throws Exception {
    int large = 100_000;
    int small = 49_000;
    try (HostRanks ranks = new HostRanks(2, 2L * large, fifoOf(fifoBytes))) {
      ranks.in.forEach(buffer -> buffer.copyFrom(new byte[2 * large]));
      ranks.run(
          rank -> {
            Stream stream = ranks.streams.get(rank);
            HostCommunicator communicator = ranks.get(rank);
            bfloats(ranks, rank, large);
            bfloats(ranks, rank, large);
            ExecutableGraph graph = executable(stream, () -> bfloats(ranks, rank, large));
            graph.launch(stream);
            for (int i = 0; i < rounds; i++) {
              bfloats(ranks, rank, small);
              if (captureAgain) {
                graph.launch(stream);
                try (ExecutableGraph other =
                    executable(stream, () -> bfloats(ranks, rank, small))) {
                  other.launch(stream);
                }
              }
              stream.synchronize();
              assertEquals(0, communicator.fifo().inUse());
            }
            graph.close();
            // The two before the capture, and one of the loop.
            assertTrue(communicator.fifo().highWaterBytes() <= 3L * Work.BYTES);
          });
    }
  }

  private static void bfloats(HostRanks ranks, int rank, int count) {
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

  // ---- counting

  /** Every way to the same operations leaves the same counts, whatever the other rank does. */
  @Test
  void numbersStayRight() throws Exception {
    int rounds = 20_000;
    try (HostRanks ranks = new HostRanks(2, 4096)) {
      ranks.run(
          rank -> {
            HostCommunicator communicator = ranks.get(rank);
            Stream stream = ranks.streams.get(rank);
            DeviceBuffer buffer = ranks.in.get(rank);
            buffer.copyFrom(new int[] {1, rank});
            Runnable three =
                () -> {
                  communicator.allReduce(buffer, buffer, 1, DataType.INT32, ReduceOp.SUM, stream);
                  Group.run(
                      () -> {
                        communicator.send(buffer.slice(4), 1, DataType.INT32, 1 - rank, stream);
                        communicator.recv(buffer.slice(8), 1, DataType.INT32, 1 - rank, stream);
                      });
                  communicator.barrier(stream);
                  stream.copy(buffer.slice(4, 4), buffer.slice(8, 4));
                };
            try (ExecutableGraph graph = executable(stream, three);
                ExecutableGraph twice =
                    executable(
                        stream,
                        () -> {
                          three.run();
                          three.run();
                        })) {
              for (int done = 0; done < rounds; ) {
                int way = (done + rank * 3) / 5 % 4;
                if (way == 0 || done == rounds - 1) {
                  three.run();
                  done++;
                } else if (way == 1) {
                  graph.launch(stream);
                  done++;
                } else {
                  twice.launch(stream);
                  done += 2;
                }
                if (done % 997 == 0) {
                  stream.synchronize();
                  assertTrue(stream.query());
                }
              }
              stream.synchronize();
            }
            assertEquals(2L * rounds, communicator.counters().collectives());
            assertEquals(2L * rounds, communicator.own().collectives().completed());
            assertEquals(rounds, communicator.counters().sends());
            assertEquals(rounds, communicator.counters().receives());
            // Swapped an even number of times.
            assertEquals(rank, buffer.slice(4).toInts()[0]);
          });
      // Where signatures differ, so does the next one's.
      ranks.run(
          rank -> {
            ranks.sum(rank, 1);
            ranks.streams.get(rank).synchronize();
          });
    }
  }

  @ParameterizedTest
  @ValueSource(longs = {1L << 31, 1L << 32})
  void numbersWrap(long wrap) throws Exception {
    try (HostRanks ranks = SequenceWrapTest.ranksAt(wrap - SequenceWrapTest.BEFORE, 2, 4096)) {
      ranks.run(
          rank -> {
            HostCommunicator communicator = ranks.get(rank);
            Stream stream = ranks.streams.get(rank);
            DeviceBuffer in = ranks.in.get(rank);
            DeviceBuffer out = ranks.out.get(rank);
            try (ExecutableGraph graph =
                executable(
                    stream,
                    () -> {
                      ranks.sum(rank, 4);
                      ranks.sum(rank, 1000);
                      Group.run(
                          () -> {
                            communicator.send(in, 900, DataType.INT32, 1 - rank, stream);
                            communicator.recv(out, 900, DataType.INT32, 1 - rank, stream);
                          });
                    })) {
              for (int i = 0; i < SequenceWrapTest.BEFORE + 300; i++) {
                in.copyFrom(new int[] {i + rank});
                graph.launch(stream);
                stream.synchronize();
                assertEquals(i + 1 - rank, out.toInts()[0]);
              }
            }
          });
    }
  }

  /** A refused launch takes no number: the other rank's next operation meets this rank's next. */
  @Test
  void refusedLaunchesTakeNoNumbers() {
    try (HostRanks ranks = new HostRanks(2, 4096)) {
      Stream stream = ranks.streams.get(0);
      DeviceBuffer buffer = ranks.get(0).device().allocate(64);
      try (ExecutableGraph graph =
          executable(
              stream,
              () -> {
                ranks.sum(0, 1);
                ranks.get(0).allReduce(buffer, buffer, 1, DataType.INT32, ReduceOp.SUM, stream);
              })) {
        buffer.close();
        for (int i = 0; i < 5; i++) {
          assertThrows(InvalidUsageException.class, () -> graph.launch(stream));
        }
      }
      assertEquals(0, ranks.get(0).counters().collectives());
      ranks.in.forEach(in -> in.copyFrom(new int[] {21}));
      ranks.sum(0, 1);
      ranks.sum(1, 1);
      ranks.streams.forEach(Stream::synchronize);
      assertEquals(42, ranks.out.get(0).toInts()[0]);
    }
  }

  /** More launches than the ring has entries, with nobody else to drive the other ranks. */
  @Test
  void oneThreadLaunchesForAllRanksWithoutWaiting() {
    int n = 4;
    try (HostRanks ranks = new HostRanks(n, 64)) {
      ExecutableGraph[] graphs = new ExecutableGraph[n];
      for (int rank = 0; rank < n; rank++) {
        int of = rank;
        ranks.in.get(rank).copyFrom(new int[] {rank});
        graphs[rank] = executable(ranks.streams.get(rank), () -> ranks.sum(of, 1));
      }
      for (int i = 0; i < 5000; i++) {
        for (int rank = 0; rank < n; rank++) {
          graphs[rank].launch(ranks.streams.get(rank));
        }
      }
      ranks.streams.forEach(Stream::synchronize);
      for (int rank = 0; rank < n; rank++) {
        assertEquals(6, ranks.out.get(rank).toInts()[0]);
        graphs[rank].close();
      }
    }
  }

  /** Nobody waits for the graph, and it runs all the same. */
  @Test
  void theTickerRunsGraphs() throws Exception {
    try (HostRanks ranks = new HostRanks(2, 1 << 20)) {
      ExecutableGraph[] graphs = new ExecutableGraph[2];
      for (int rank = 0; rank < 2; rank++) {
        int of = rank;
        ranks.in.get(rank).copyFrom(new int[] {rank + 1});
        graphs[rank] =
            executable(
                ranks.streams.get(rank),
                () -> {
                  ranks.sum(of, 1);
                  ranks.sum(of, 100_000);
                });
        graphs[rank].launch(ranks.streams.get(rank));
      }
      CompletableFuture<?>[] futures = new CompletableFuture<?>[2];
      for (int rank = 0; rank < 2; rank++) {
        var event = ranks.get(rank).device().newEvent();
        ranks.streams.get(rank).record(event);
        futures[rank] = event.toFuture();
      }
      CompletableFuture.allOf(futures).get(10, TimeUnit.SECONDS);
      assertEquals(3, ranks.out.get(1).toInts()[0]);
      for (ExecutableGraph graph : graphs) {
        graph.close();
      }
    }
  }

  // ---- processes

  @Tag("process")
  @ParameterizedTest
  @ValueSource(ints = {8, 100_000})
  void theDeathOfAPeerEndsAGraph(int count) throws Exception {
    try (ChildJvm child = ChildJvm.start(RankMain.class)) {
      child.expect("ready");
      UniqueId id = UniqueId.create(Backend.HOST);
      child.tell("join " + id + " 2 1");
      try (Communicator own =
          Communicator.initRank(
              Device.get(Backend.HOST, 0), 2, id, 0, HostRanks.patient().build())) {
        child.expect("joined");
        CompletableFuture<Throwable> failed =
            CompletableFuture.supplyAsync(() -> launchUntilFailure(own, count));
        child.tell("loop " + count);
        child.expect("looping");
        child.kill();
        failed.get(20, TimeUnit.SECONDS);
        PeerFailedException e =
            assertInstanceOf(PeerFailedException.class, own.failure().orElseThrow());
        assertEquals(1, e.rank(), e.getMessage());
      }
    }
  }

  private static Throwable launchUntilFailure(Communicator communicator, int count) {
    try (DeviceBuffer in = communicator.device().allocate(DataType.INT32, count);
        DeviceBuffer out = communicator.device().allocate(DataType.INT32, count);
        Stream stream = communicator.device().newStream();
        ExecutableGraph graph =
            executable(
                stream,
                () -> {
                  for (int i = 0; i < 10; i++) {
                    communicator.allReduce(in, out, count, DataType.INT32, ReduceOp.SUM, stream);
                  }
                })) {
      while (true) {
        graph.launch(stream);
        graph.launch(stream);
        stream.synchronize();
      }
    } catch (NcclException e) {
      return e;
    }
  }
}
