package io.nccl4j.conformance;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.management.ThreadMXBean;
import io.nccl4j.ArrayCalls;
import io.nccl4j.Communicator;
import io.nccl4j.Communicators;
import io.nccl4j.DataType;
import io.nccl4j.Group;
import io.nccl4j.InterruptedWaitException;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.MismatchException;
import io.nccl4j.NcclException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.memory.MemoryBudgetException;
import io.nccl4j.memory.MemoryPurpose;
import io.nccl4j.memory.MemoryReport;
import java.lang.management.ManagementFactory;
import java.util.Arrays;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;
import org.junit.jupiter.api.function.Executable;

/**
 * What calls on arrays refuse, and what they take and give back; their results are rows of {@link
 * ConformanceTest}.
 */
@Timeout(value = 60, threadMode = ThreadMode.SEPARATE_THREAD)
class ArrayCallsTest {
  /** Bytes of heap that a call may allocate, even where nothing is inlined. */
  private static final long MOST = 256;

  private static final int KEPT = (int) ArrayCalls.KEPT_BYTES;

  private static long staged(Communicator communicator) {
    return MemoryReport.of(communicator).bytes(MemoryPurpose.COPY);
  }

  /** All ranks do it; nobody fails. */
  private static void run(Ranks ranks, Communicators.RankTask task) throws Exception {
    for (Throwable thrown : ranks.outcomes(task)) {
      if (thrown != null) {
        throw new AssertionError(thrown);
      }
    }
  }

  @Test
  void theShortestFormsOfAllTypes() throws Exception {
    try (Ranks ranks = new Ranks(2)) {
      run(
          ranks,
          comm -> {
            int r = comm.rank();
            float[] floats = {1 + r, 2};
            comm.allReduce(floats, ReduceOp.SUM);
            assertArrayEquals(new float[] {3, 4}, floats);
            double[] doubles = {1 + r, 2};
            comm.allReduce(doubles, ReduceOp.PROD);
            assertArrayEquals(new double[] {2, 4}, doubles);
            int[] ints = {1 + r, 2};
            comm.allReduce(ints, ReduceOp.MAX);
            assertArrayEquals(new int[] {2, 2}, ints);
            long[] longs = {1 + r, 2};
            comm.allReduce(longs, ReduceOp.MIN);
            assertArrayEquals(new long[] {1, 2}, longs);
            byte[] bytes = {(byte) (1 + r), 2};
            comm.allReduce(bytes, ReduceOp.SUM);
            assertArrayEquals(new byte[] {3, 4}, bytes);
            comm.broadcast(floats, 1);
            comm.broadcast(doubles, 1);
            comm.broadcast(ints, 1);
            longs[0] = 10 + r;
            comm.broadcast(longs, 1);
            assertEquals(11, longs[0]);
            comm.broadcast(bytes, 0);
            short[] halves = {Float.floatToFloat16(1.5f + r)};
            comm.shorts(DataType.FLOAT16).allReduce(halves, ReduceOp.SUM);
            assertEquals(4f, Float.float16ToFloat(halves[0]));
            byte[] unsigned = {(byte) (200 + r)};
            comm.bytes(DataType.UINT8).allReduce(unsigned, ReduceOp.MAX);
            assertEquals((byte) 201, unsigned[0]);
            comm.barrier();
          });
    }
  }

  /** Two of four ranks use arrays, the others buffers. */
  @Test
  void otherRanksMayUseBuffers() throws Exception {
    try (Ranks ranks = new Ranks(4)) {
      run(
          ranks,
          comm -> {
            int rank = comm.rank();
            int[] sum = {rank};
            int[] all = new int[4];
            if (rank % 2 == 0) {
              comm.allReduce(sum, ReduceOp.SUM);
              comm.ints().allGather(new int[] {10 * rank}, all);
            } else {
              Stream stream = ranks.streams.get(rank);
              ranks.put(rank, rank);
              ranks.sum(rank, 1);
              stream.synchronize();
              sum = ranks.got(rank, 1);
              ranks.put(rank, 10 * rank);
              comm.allGather(ranks.in.get(rank), ranks.out.get(rank), 1, DataType.INT32, stream);
              stream.synchronize();
              all = ranks.got(rank, 4);
            }
            assertArrayEquals(new int[] {6}, sum);
            assertArrayEquals(new int[] {0, 10, 20, 30}, all);
          });
    }
  }

  // ---- bad input

  private record Row(String word, Executable call) {}

  @Test
  void badInputIsRefusedAndNothingIsLost() throws Exception {
    try (Ranks ranks = new Ranks(2)) {
      Communicator comm = ranks.get(0);
      ArrayCalls<float[]> f = comm.floats();
      float[] four = {1, 2, 3, 4};
      float[] five = new float[5];
      float[] eight = new float[8];
      long[] counts = {2, 2};
      long[] starts = {0, 2};
      Row[] rows = {
        new Row("null", () -> f.allReduce(null, ReduceOp.SUM)),
        new Row("reduction", () -> f.allReduce(four, null)),
        new Row("recv is null", () -> f.allReduce(four, null, ReduceOp.SUM)),
        new Row("5 elements, not 4", () -> f.allReduce(four, five, ReduceOp.SUM)),
        new Row("root is 2", () -> f.broadcast(four, 2)),
        new Row("root is -1", () -> f.reduce(four, ReduceOp.SUM, -1)),
        new Row("recv is null", () -> f.reduce(four, null, ReduceOp.SUM, 0)),
        new Row("5 elements, not 4", () -> f.reduce(four, five, ReduceOp.SUM, 0)),
        new Row("5 elements for 2", () -> f.allGather(five)),
        new Row("5 elements, not 8", () -> f.allGather(four, five)),
        new Row("5 elements, not 8", () -> f.reduceScatter(five, four, ReduceOp.SUM)),
        new Row("5 elements for 2", () -> f.allToAll(five, five)),
        new Row("5 elements, not 4", () -> f.allToAll(four, five)),
        new Row("5 elements, not 8", () -> f.gather(four, five, 0)),
        new Row("root is 9", () -> f.gather(four, eight, 9)),
        new Row("send is null", () -> f.scatter(null, four, 0)),
        new Row("5 elements, not 8", () -> f.scatter(five, four, 0)),
        new Row("recvCounts is null", () -> f.allGatherV(four, eight, null)),
        new Row("3 entries", () -> f.allGatherV(four, eight, new long[3])),
        new Row("recvCounts\\[1\\] is -1", () -> f.allGatherV(four, eight, new long[] {4, -1})),
        new Row("4 elements, not 2", () -> f.allGatherV(four, eight, counts)),
        new Row("8 elements, its blocks 9", () -> f.allGatherV(four, eight, new long[] {4, 5})),
        new Row("recvDisplacements", () -> f.allGatherV(four, eight, counts, null)),
        new Row("overlap", () -> f.allGatherV(four, eight, new long[] {4, 2}, new long[] {0, 3})),
        new Row(
            "2\\^63",
            () -> f.allGatherV(four, eight, new long[] {4, 4}, new long[] {0, Long.MAX_VALUE})),
        new Row(
            "9223372036854775807",
            () -> f.allGatherV(four, eight, new long[] {4, Long.MAX_VALUE - 4})),
        new Row(
            "its blocks 5", () -> f.reduceScatterV(four, four, new long[] {4, 1}, ReduceOp.SUM)),
        new Row(
            "5 elements, not 4",
            () -> f.reduceScatterV(eight, five, new long[] {4, 4}, ReduceOp.SUM)),
        new Row("sendCounts is null", () -> f.allToAllV(four, null, four, counts)),
        new Row("sendDisplacements", () -> f.allToAllV(four, counts, null, four, counts, starts)),
        new Row("expects 1", () -> f.allToAllV(four, counts, four, new long[] {1, 3})),
        new Row("recvCounts is null", () -> f.gatherV(four, eight, null, 0)),
        new Row("4 elements, not 2", () -> f.gatherV(four, eight, counts, 0)),
        new Row("recv is null", () -> f.gatherV(four, null, new long[] {4, 4}, 0)),
        new Row("root is 2", () -> f.gatherV(four, eight, new long[] {4, 4}, 2)),
        new Row("send is null", () -> f.scatterV(null, new long[] {4, 4}, four, 0)),
        new Row("4 elements, not 2", () -> f.scatterV(eight, counts, four, 0)),
        new Row("peer is 2", () -> f.send(four, 2)),
        new Row("peer is -1", () -> f.recv(four, -1)),
        new Row("data is null", () -> f.send(null, 1)),
        new Row("peer is 3", () -> f.sendRecv(four, 3, eight, 1)),
        new Row("peer is 3", () -> f.sendRecv(four, 1, eight, 3)),
        new Row("recv is null", () -> f.sendRecv(four, 1, null, 1)),
        new Row("short\\[\\]", () -> comm.shorts(DataType.FLOAT32)),
        new Row("byte\\[\\]", () -> comm.bytes(DataType.INT32)),
        new Row("boolean\\[\\]", () -> comm.arrays(boolean[].class, DataType.INT8)),
        new Row("type is null", () -> comm.arrays(int[].class, null)),
        new Row("kind of array is null", () -> comm.arrays(null, DataType.INT32)),
        new Row("scalar", () -> comm.allReduce(new int[4], ReduceOp.preMulSum(0.5))),
      };
      for (Row row : rows) {
        InvalidArgumentException e = assertThrows(InvalidArgumentException.class, row.call);
        assertTrue(e.getMessage().matches("(?s).*" + row.word + ".*"), e.getMessage());
        assertFalse(e.remedy().isEmpty(), e.getMessage());
      }
      assertArrayEquals(new float[] {1, 2, 3, 4}, four);
      assertArrayEquals(new float[8], eight);
      ranks.assertUsable();
      run(ranks, c -> c.allReduce(new float[] {1}, ReduceOp.SUM));
      assertSame(f, comm.floats());
    }
  }

  @Test
  void notInAGroupACaptureOrWhileAnotherThreadIsInside() throws Exception {
    try (Ranks ranks = new Ranks(2)) {
      Communicator comm = ranks.get(0);
      float[] data = {5};
      try (Group group = Group.start()) {
        assertNotNull(group);
        refused("group", () -> comm.allReduce(data, ReduceOp.SUM));
        refused("group", comm::barrier);
        refused("group", () -> comm.floats().sendRecv(data, 1, data, 1));
      }
      Stream stream = ranks.streams.get(0);
      stream.beginCapture();
      refused("capture", () -> comm.allReduce(data, ReduceOp.SUM));
      stream.endCapture().close();
      stream.beginCapture();
      // A stream that is closed takes its capture along.
      stream.close();

      Thread[] inside = new Thread[1];
      CountDownLatch entered = new CountDownLatch(1);
      inside[0] =
          Thread.ofPlatform()
              .start(
                  () -> {
                    entered.countDown();
                    comm.allReduce(data, ReduceOp.SUM);
                  });
      assertTrue(entered.await(10, TimeUnit.SECONDS));
      assertTrue(TestBackend.eventually(() -> comm.counters().unfinishedWorks() > 0));
      refused("another thread", () -> comm.allReduce(new float[1], ReduceOp.SUM));
      ranks.get(1).allReduce(new float[] {6}, ReduceOp.SUM);
      inside[0].join();
      assertEquals(11, data[0]);
    }
    Communicators closed = TestBackend.communicators(1);
    closed.close();
    refused("closed", () -> closed.get(0).allReduce(new float[1], ReduceOp.SUM));
    refused("closed", () -> closed.get(0).barrier());
  }

  private static void refused(String word, Executable call) {
    InvalidUsageException e = assertThrows(InvalidUsageException.class, call);
    assertTrue(e.getMessage().contains(word), e.getMessage());
    assertFalse(e.remedy().isEmpty(), e.getMessage());
  }

  // ---- failures

  @Test
  void lengthsThatDifferFailOnAllRanksAndChangeNoArray() throws Exception {
    TestBackend.requireHost("NCCL does not detect contradictions by itself");
    try (Ranks ranks = new Ranks(2)) {
      float[][] data = {{1, 2}, {1, 2, 3}};
      Throwable[] thrown = ranks.outcomes(comm -> comm.allReduce(data[comm.rank()], ReduceOp.SUM));
      assertInstanceOf(MismatchException.class, thrown[0]);
      assertInstanceOf(MismatchException.class, thrown[1]);
      assertArrayEquals(new float[] {1, 2}, data[0]);
      assertArrayEquals(new float[] {1, 2, 3}, data[1]);
      for (Communicator comm : ranks.communicators) {
        assertEquals(Communicator.State.FAILED, comm.state());
        assertTrue(TestBackend.eventually(() -> staged(comm) == 0), "memory of a failed call");
      }
    }
  }

  @Test
  void anInterruptLosesOneResultAndNothingElse() throws Exception {
    try (Ranks ranks = new Ranks(2)) {
      run(ranks, comm -> comm.allReduce(new int[100], ReduceOp.SUM));
      Communicator comm = ranks.get(0);
      int[] data = {7};
      Throwable[] thrown = new Throwable[1];
      Thread waiting =
          Thread.ofPlatform()
              .start(
                  () ->
                      thrown[0] =
                          assertThrows(
                              InterruptedWaitException.class,
                              () -> comm.allReduce(data, ReduceOp.SUM)));
      assertTrue(TestBackend.eventually(() -> comm.counters().unfinishedWorks() > 0));
      waiting.interrupt();
      waiting.join();
      assertNotNull(thrown[0]);
      assertEquals(Communicator.State.READY, comm.state());
      // The other rank's operation is the one that this rank has left; the next ones pair up.
      int[] other = {8};
      ranks.get(1).allReduce(other, ReduceOp.SUM);
      assertEquals(15, other[0]);
      assertEquals(7, data[0]);
      run(
          ranks,
          c -> {
            int[] next = {c.rank()};
            c.allReduce(next, ReduceOp.SUM);
            assertEquals(1, next[0]);
          });
      assertTrue(TestBackend.eventually(() -> staged(comm) == 4096), () -> staged(comm) + " B");
    }
  }

  // ---- memory

  @Test
  void memoryIsBookedKeptUpToALimitAndGivenBack() throws Exception {
    try (Ranks ranks = new Ranks(2)) {
      Communicator comm = ranks.get(0);
      assertEquals(0, staged(comm));
      run(ranks, c -> c.allReduce(new byte[5000], ReduceOp.SUM));
      assertEquals(8192, staged(comm));
      run(ranks, c -> c.allReduce(new byte[100], ReduceOp.SUM));
      assertEquals(8192, staged(comm));
      run(ranks, c -> c.allReduce(new byte[KEPT], ReduceOp.SUM));
      assertEquals(KEPT, staged(comm));
      run(
          ranks,
          c -> {
            byte[] large = new byte[KEPT + 1];
            large[KEPT] = (byte) (c.rank() + 1);
            c.allReduce(large, ReduceOp.SUM);
            assertEquals(3, large[KEPT]);
          });
      assertTrue(TestBackend.eventually(() -> staged(comm) == KEPT), () -> staged(comm) + " B");
      comm.abort();
      assertTrue(TestBackend.eventually(() -> staged(comm) == 0), () -> staged(comm) + " B");
      assertThrows(NcclException.class, () -> comm.allReduce(new byte[1], ReduceOp.SUM));
      assertEquals(0, staged(comm));
    }
  }

  @Test
  void memoryIsHeldToTheBudgetOfTheDevice() {
    try (Ranks ranks = new Ranks(1)) {
      Communicator comm = ranks.get(0);
      int[] data = {1, 2, 3};
      System.setProperty("nccl4j.device-memory-budget", "1");
      try {
        assertThrows(MemoryBudgetException.class, () -> comm.allReduce(data, ReduceOp.SUM));
        assertEquals(0, staged(comm));
      } finally {
        System.clearProperty("nccl4j.device-memory-budget");
      }
      comm.allReduce(data, ReduceOp.SUM);
      assertArrayEquals(new int[] {1, 2, 3}, data);
    }
  }

  @Test
  void closingGivesItBack() throws Exception {
    Communicators all = TestBackend.communicators(2);
    all.run(c -> c.allReduce(new byte[KEPT], ReduceOp.SUM));
    long before = MemoryReport.of(all.get(0).device()).bytes(MemoryPurpose.COPY);
    all.close();
    assertTrue(
        TestBackend.eventually(
            () -> MemoryReport.of(all.get(0).device()).bytes(MemoryPurpose.COPY) <= before - KEPT));
  }

  /**
   * Calls of the same size allocate no native memory, and of the heap at most what stands for the
   * arrays; where they are inlined, not even that.
   */
  @Test
  void repeatedCallsAllocateNextToNothing() throws Exception {
    TestBackend.requireHost("what copies to a GPU allocate is not bounded here");
    try (Ranks ranks = new Ranks(2)) {
      run(ranks, comm -> calls(comm, 1));
      long taken = staged(ranks.get(0));
      long[] perCall = {Long.MAX_VALUE, Long.MAX_VALUE};
      int calls = 5000;
      for (int round = 0; round < 40 && Math.max(perCall[0], perCall[1]) > MOST; round++) {
        run(
            ranks,
            comm -> {
              ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
              calls(comm, 100);
              long before = threads.getCurrentThreadAllocatedBytes();
              calls(comm, calls);
              long allocated = threads.getCurrentThreadAllocatedBytes() - before;
              perCall[comm.rank()] = allocated / (2L * calls);
            });
      }
      assertTrue(Math.max(perCall[0], perCall[1]) <= MOST, () -> Arrays.toString(perCall));
      assertEquals(taken, staged(ranks.get(0)));
    }
  }

  private static void calls(Communicator comm, int times) {
    float[] data = new float[1000];
    float[] all = new float[2000];
    for (int i = 0; i < times; i++) {
      comm.allReduce(data, ReduceOp.MAX);
      comm.floats().allGather(data, all);
    }
  }
}
