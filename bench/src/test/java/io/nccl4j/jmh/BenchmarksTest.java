package io.nccl4j.jmh;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeFalse;

import io.nccl4j.Backend;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;
import org.openjdk.jmh.annotations.Fork;

/** The benchmarks' bodies do what they are said to do. Each binds its thread: a new one a test. */
@Timeout(value = 60, threadMode = ThreadMode.SEPARATE_THREAD)
class BenchmarksTest {
  private static final int STEPS = 200;

  @ParameterizedTest
  @ValueSource(ints = {8, 64, 512, 4096, 32768, 262144, 1048576})
  void allReducesOfTwoRanksAddUp(int bytes) {
    AllReduceBenchmark benchmark = new AllReduceBenchmark();
    benchmark.bytes = bytes;
    benchmark.open();
    for (int i = 0; i < STEPS; i++) {
      assertEquals(2, benchmark.allReduce());
    }
    float[] expected = new float[bytes / Float.BYTES];
    Arrays.fill(expected, 2);
    assertArrayEquals(expected, benchmark.result());
    benchmark.close();
  }

  @Test
  void everyListedSizeIsTested() throws Exception {
    String[] sizes =
        AllReduceBenchmark.class
            .getField("bytes")
            .getAnnotation(org.openjdk.jmh.annotations.Param.class)
            .value();
    int[] tested =
        BenchmarksTest.class
            .getDeclaredMethod("allReducesOfTwoRanksAddUp", int.class)
            .getAnnotation(ValueSource.class)
            .ints();
    assertArrayEquals(tested, Arrays.stream(sizes).mapToInt(Integer::parseInt).toArray());
  }

  @ParameterizedTest
  @EnumSource
  void everyWayOfAStepGivesTheSame(GraphReplayBenchmark.Way way) {
    GraphReplayBenchmark benchmark = new GraphReplayBenchmark();
    benchmark.way = way;
    benchmark.open();
    for (int i = 0; i < STEPS; i++) {
      assertEquals(2, benchmark.step());
      assertEquals(0, benchmark.occupiedBytes());
    }
    benchmark.close();
  }

  @Test
  void theSchedulerCompletesWhatItIsGiven() {
    SchedulerBenchmark benchmark = new SchedulerBenchmark();
    benchmark.open();
    for (int i = 1; i <= STEPS; i++) {
      benchmark.barrier();
      benchmark.queuedBarrier();
      benchmark.emptyAllReduce();
      assertEquals((2L + SchedulerBenchmark.BATCH) * i, benchmark.completed());
    }
    benchmark.close();
  }

  @Test
  void thePoolGivesOneBufferAfterTheOther() throws Throwable {
    PoolBenchmark benchmark = new PoolBenchmark();
    benchmark.bytes = 100_000;
    benchmark.open();
    long address = benchmark.pool();
    for (int i = 1; i < STEPS; i++) {
      assertEquals(address, benchmark.pool());
    }
    assertArrayEquals(new long[] {STEPS, 32 << 20}, benchmark.allocationsAndReservedBytes());
    assertTrue(benchmark.malloc() != 0);
    benchmark.close();
  }

  /** Where there is a GPU the benchmark itself shows what it does. */
  @Test
  void withoutAGpuItSaysSo() {
    assumeFalse(Backend.CUDA.info().isUsable(), "there is a GPU");
    IllegalStateException e =
        assertThrows(IllegalStateException.class, () -> new GpuPoolBenchmark().open());
    assertTrue(e.getMessage().startsWith("needs a GPU: "), e.getMessage());
  }

  /** Without these options another path of the library would be measured. */
  @Test
  void forksHaveTheLaunchersOptions() {
    for (Class<?> benchmark :
        List.of(
            HostBenchmark.class,
            AllReduceBenchmark.class,
            FirstCallBenchmark.class,
            GpuPoolBenchmark.class)) {
      List<String> options = List.of(benchmark.getAnnotation(Fork.class).jvmArgs());
      assertTrue(options.contains("jdk.incubator.vector"), benchmark::getName);
      assertTrue(options.contains("--enable-native-access=ALL-UNNAMED"), benchmark::getName);
    }
  }
}
