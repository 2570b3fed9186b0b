package io.nccl4j.conformance;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.CommunicatorCounters;
import io.nccl4j.Communicators;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ExecutableGraph;
import io.nccl4j.Graph;
import io.nccl4j.Group;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.OperationCounters;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import java.util.stream.StreamSupport;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;

/** Calls, bytes and times of each operation. */
@Timeout(value = 120, threadMode = ThreadMode.SEPARATE_THREAD)
class OperationCountersTest {
  private static final CommunicatorConfig TIMED =
      TestBackend.CONFIG.toBuilder().timesOperations(true).build();

  /** What was counted since {@code before}: calls and bytes, by operation. */
  private static Map<String, List<Long>> since(
      List<OperationCounters> before, Communicator communicator) {
    Map<String, List<Long>> counted = new HashMap<>();
    for (OperationCounters then : before) {
      OperationCounters now = communicator.counters().operation(then.operation());
      if (now.calls() > then.calls()) {
        counted.put(
            now.operation(), List.of(now.calls() - then.calls(), now.bytes() - then.bytes()));
      }
    }
    return counted;
  }

  @Test
  void bytesAreThoseOfTheLargerSide() throws Exception {
    try (Communicators ranks = TestBackend.communicators(2)) {
      List<List<OperationCounters>> before =
          StreamSupport.stream(ranks.spliterator(), false)
              .map(rank -> rank.counters().operations())
              .toList();
      ranks.run(
          rank -> {
            try (Stream stream = rank.device().newStream();
                DeviceBuffer in = rank.device().allocate(4096);
                DeviceBuffer out = rank.device().allocate(4096)) {
              DataType type = DataType.INT32;
              int r = rank.rank();
              rank.allReduce(in, out, 3, type, ReduceOp.SUM, stream);
              rank.allReduce(in, out, 2, DataType.INT64, ReduceOp.SUM, stream);
              rank.broadcast(in, out, 5, type, 0, stream);
              rank.reduce(in, out, 5, type, ReduceOp.MIN, 1, stream);
              rank.allGather(in, out, 7, type, stream);
              rank.reduceScatter(in, out, 7, type, ReduceOp.SUM, stream);
              rank.allToAll(in, out, 9, type, stream);
              rank.gather(in, out, 11, type, 1, stream);
              rank.scatter(in, out, 11, type, 1, stream);
              long[] counts = {3, 10};
              long[] starts = {0, 3};
              rank.allGatherV(in, out, counts, starts, type, stream);
              rank.reduceScatterV(in, out, counts, type, ReduceOp.SUM, stream);
              // To rank 0 one element, to rank 1 four.
              long[] sends = {1, 4};
              long[] sendStarts = {0, 1};
              long[] receives = r == 0 ? new long[] {1, 1} : new long[] {4, 4};
              long[] receiveStarts = r == 0 ? new long[] {0, 1} : new long[] {0, 4};
              rank.allToAllV(in, sends, sendStarts, out, receives, receiveStarts, type, stream);
              rank.gatherV(in, counts[r], out, counts, starts, type, 0, stream);
              rank.scatterV(in, counts, starts, out, counts[r], type, 0, stream);
              Group.run(
                  () -> {
                    rank.send(in, 13, type, 1 - r, stream);
                    rank.recv(out, 13, type, 1 - r, stream);
                  });
              rank.barrier(stream);
              stream.synchronize();
            }
          });
      for (int r = 0; r < 2; r++) {
        Map<String, List<Long>> expected = new HashMap<>();
        expected.put("allReduce", List.of(2L, 4L * 3 + 8 * 2));
        expected.put("broadcast", List.of(1L, 4L * 5));
        expected.put("reduce", List.of(1L, 4L * 5));
        expected.put("allGather", List.of(1L, 4L * 14));
        expected.put("reduceScatter", List.of(1L, 4L * 14));
        expected.put("allToAll", List.of(1L, 4L * 18));
        expected.put("gather", List.of(1L, 4L * (r == 1 ? 22 : 11)));
        expected.put("scatter", List.of(1L, 4L * (r == 1 ? 22 : 11)));
        expected.put("allGatherV", List.of(1L, 4L * 13));
        expected.put("reduceScatterV", List.of(1L, 4L * 13));
        expected.put("allToAllV", List.of(1L, 4L * (r == 1 ? 8 : 5)));
        expected.put("gatherV", List.of(1L, 4L * (r == 0 ? 13 : 10)));
        expected.put("scatterV", List.of(1L, 4L * (r == 0 ? 13 : 10)));
        expected.put("send", List.of(1L, 4L * 13));
        expected.put("recv", List.of(1L, 4L * 13));
        expected.put("barrier", List.of(1L, 0L));
        assertEquals(expected, since(before.get(r), ranks.get(r)), "rank " + r);
      }
    }
  }

  @Test
  void graphsCountAtEachLaunchAndDiscardedGroupsNever() {
    try (Ranks ranks = new Ranks(1)) {
      List<OperationCounters> before = ranks.get(0).counters().operations();
      Stream stream = ranks.streams.get(0);
      stream.beginCapture();
      ranks.sum(0, 2);
      ranks.sum(0, 3);
      ranks.get(0).barrier(stream);
      try (Graph graph = stream.endCapture();
          ExecutableGraph executable = graph.instantiate()) {
        assertEquals(Map.of(), since(before, ranks.get(0)));
        for (int i = 0; i < 4; i++) {
          executable.launch(stream);
        }
        stream.synchronize();
      }
      Group discarded = Group.start();
      ranks.sum(0, 100);
      discarded.close();
      assertEquals(
          Map.of("allReduce", List.of(8L, 80L), "barrier", List.of(4L, 0L)),
          since(before, ranks.get(0)));
    }
  }

  @Test
  void timesAreThereWhenWanted() throws Exception {
    for (CommunicatorConfig config : List.of(TIMED, TestBackend.CONFIG)) {
      boolean isTimed = config.timesOperations();
      try (Ranks ranks = new Ranks(2, config)) {
        long start = System.nanoTime();
        OperationCounters before = ranks.get(0).counters().operation("allReduce");
        for (int i = 0; i < 100; i++) {
          IntStream.range(0, 2).forEach(rank -> ranks.sum(rank, 1));
        }
        ranks.synchronize();
        long most = System.nanoTime() - start;
        OperationCounters after = ranks.get(0).counters().operation("allReduce");
        assertEquals(100, after.calls() - before.calls());
        assertEquals(isTimed ? 100 : 0, after.timedCalls() - before.timedCalls());
        long nanos = after.timeNanos() - before.timeNanos();
        assertTrue(isTimed ? nanos > 0 && nanos <= 100 * most : nanos == 0, after::toString);
        assertTrue(after.maxTimeNanos() <= after.timeNanos(), after::toString);
        assertEquals(isTimed, after.maxTimeNanos() > 0, after::toString);
        assertTrue(after.waitNanos() <= after.timeNanos(), after::toString);
        boolean isKnown = isTimed && TestBackend.BACKEND == Backend.HOST;
        assertEquals(isKnown, after.waitNanos() > 0, after::toString);
      }
    }
  }

  @Test
  void aNameThatIsNoOperationsIsRefused() {
    try (Ranks ranks = new Ranks(1)) {
      CommunicatorCounters counters = ranks.get(0).counters();
      assertEquals(
          new OperationCounters("scatterV", 0, 0, 0, 0, 0, 0), counters.operation("scatterV"));
      InvalidArgumentException e =
          assertThrows(InvalidArgumentException.class, () -> counters.operation("allreduce"));
      assertTrue(e.remedy().startsWith("use one of allReduce, broadcast, "), e::remedy);
    }
  }
}
