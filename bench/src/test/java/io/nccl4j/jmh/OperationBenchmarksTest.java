package io.nccl4j.jmh;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.management.ThreadMXBean;
import io.nccl4j.Backend;
import io.nccl4j.bench.program.Collective;
import java.lang.management.ManagementFactory;
import java.util.Arrays;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.openjdk.jmh.annotations.Param;

/** The bodies of the benchmarks of collectives, and what keeps their ranks in step. */
@Timeout(value = 60, threadMode = ThreadMode.SEPARATE_THREAD)
class OperationBenchmarksTest {
  private static final int COUNT = 3;

  static Stream<Collective> measured() throws NoSuchFieldException {
    Param param = OperationBenchmark.class.getField("operation").getAnnotation(Param.class);
    return Arrays.stream(param.value()).map(Collective::valueOf);
  }

  @ParameterizedTest
  @MethodSource("measured")
  void everyRankReceivesWhatItShould(Collective operation) {
    for (int nranks = 2; nranks <= 3; nranks++) {
      LatencyBenchmark one = open(new LatencyBenchmark(), operation, nranks);
      check(one, operation, nranks, one::latency);
      ThroughputBenchmark many = open(new ThroughputBenchmark(), operation, nranks);
      check(many, operation, nranks, many::throughput);
    }
  }

  private static <B extends OperationBenchmark> B open(
      B benchmark, Collective operation, int nranks) {
    benchmark.operation = operation;
    benchmark.bytes = COUNT * Float.BYTES;
    benchmark.backend = "host";
    benchmark.nranks = nranks;
    benchmark.open();
    return benchmark;
  }

  private static void check(
      OperationBenchmark benchmark, Collective operation, int nranks, Runnable body) {
    for (int step = 0; step < 5; step++) {
      for (int rank = 0; rank < nranks; rank++) {
        benchmark.rank(rank).clear();
      }
      body.run();
      for (int rank = 0; rank < nranks; rank++) {
        float[] expected = new float[COUNT * nranks];
        for (int i = 0; i < expected.length; i++) {
          expected[i] = expected(operation, nranks, rank, i / COUNT);
        }
        assertArrayEquals(expected, benchmark.rank(rank).result(), operation + " at " + rank);
      }
    }
    benchmark.close();
  }

  /** What a rank's block must hold; 0 where nothing is received. */
  private static float expected(Collective operation, int nranks, int rank, int block) {
    boolean isFirst = block == 0;
    boolean isRoot = rank == 0;
    return switch (operation) {
      case ALL_REDUCE -> isFirst ? sum(nranks, 0) : 0;
      case REDUCE -> isFirst && isRoot ? sum(nranks, 0) : 0;
      case REDUCE_SCATTER -> isFirst ? sum(nranks, rank) : 0;
      case BROADCAST -> isFirst ? OperationRank.input(0, 0) : 0;
      case ALL_GATHER -> OperationRank.input(block, 0);
      case ALL_TO_ALL -> OperationRank.input(block, rank);
      case GATHER -> isRoot ? OperationRank.input(block, 0) : 0;
      case SCATTER -> isFirst ? OperationRank.input(0, rank) : 0;
      case SEND_RECV -> isFirst ? OperationRank.input((rank + nranks - 1) % nranks, 0) : 0;
      default -> throw new IllegalArgumentException(operation + " is not measured");
    };
  }

  private static float sum(int nranks, int block) {
    return (float) IntStream.range(0, nranks).mapToDouble(r -> OperationRank.input(r, block)).sum();
  }

  /** A rank whose step takes its time, or fails. */
  private record Slow(int rank, int slowRank, boolean fails) implements Lockstep.Rank {
    static final long NANOS = 20_000_000;

    @Override
    public void step() {
      if (rank == slowRank) {
        long start = System.nanoTime();
        while (System.nanoTime() - start < NANOS) {
          Thread.onSpinWait();
        }
        if (fails) {
          throw new IllegalStateException("as it should");
        }
      }
    }

    @Override
    public void close() {}
  }

  @Test
  void theSlowestRankCounts() {
    for (int slowRank = 0; slowRank < 3; slowRank++) {
      int slow = slowRank;
      try (Lockstep<Slow> ranks =
          new Lockstep<>(Backend.HOST, 3, c -> new Slow(c.rank(), slow, false))) {
        for (int i = 0; i < 3; i++) {
          long start = System.nanoTime();
          ranks.step();
          assertTrue(System.nanoTime() - start >= Slow.NANOS, "rank " + slow + " was not awaited");
        }
      }
    }
  }

  @Test
  void aRankThatFailsEndsTheStep() {
    Lockstep<Slow> ranks = new Lockstep<>(Backend.HOST, 3, c -> new Slow(c.rank(), 1, true));
    IllegalStateException e = assertThrows(IllegalStateException.class, ranks::step);
    assertInstanceOf(IllegalStateException.class, e.getCause());
    assertEquals("as it should", e.getCause().getMessage());
    assertThrows(IllegalStateException.class, ranks::close);
  }

  /** Of all threads: what -prof gc shows is 0 B for an operation. */
  @ParameterizedTest
  @MethodSource("measured")
  void stepsAllocateNothing(Collective operation) {
    ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
    LatencyBenchmark benchmark = open(new LatencyBenchmark(), operation, 2);
    long[] ids =
        Thread.getAllStackTraces().keySet().stream()
            .filter(t -> t == Thread.currentThread() || t.getName().equals("rank-1"))
            .mapToLong(Thread::threadId)
            .toArray();
    assertEquals(2, ids.length);
    int steps = 2000;
    long least = Long.MAX_VALUE;
    // What runs for the first time, and the compilers' changes of code, may allocate.
    for (int round = 0; round < 20 && least >= steps; round++) {
      long before = Arrays.stream(threads.getThreadAllocatedBytes(ids)).sum();
      for (int i = 0; i < steps; i++) {
        benchmark.latency();
      }
      least = Math.min(least, Arrays.stream(threads.getThreadAllocatedBytes(ids)).sum() - before);
    }
    benchmark.close();
    assertTrue(least < steps, least + " B of " + steps + " steps");
  }

  @Test
  void theOtherBodiesDoWhatTheySay() throws Throwable {
    LockstepBenchmark lockstep = new LockstepBenchmark();
    lockstep.nranks = 2;
    lockstep.open();
    lockstep.nothing();
    lockstep.close();
    FirstCallBenchmark.Connected connected = new FirstCallBenchmark.Connected();
    connected.operation = Collective.ALL_REDUCE;
    connected.open();
    new FirstCallBenchmark().operation(connected);
    assertEquals(3, connected.rank(1).result()[0]);
    connected.close();
    new FirstCallBenchmark().connect();
    AllocatorBenchmark allocator = new AllocatorBenchmark();
    allocator.bytes = 65_536;
    allocator.backend = "host";
    allocator.open();
    assertTrue(allocator.allocateAndFree() != 0);
    allocator.close();
    DowncallBenchmark calls = new DowncallBenchmark();
    assertEquals(5, calls.plain());
    assertEquals(5, calls.critical());
    assertEquals(5, calls.capturingErrno());
    assertEquals(5, calls.withArena());
    assertEquals(0, calls.callingBack(), "bytes from the item to where it was found");
  }
}
