package io.nccl4j.bench.run;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.DeadlineException;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.bench.options.Average;
import io.nccl4j.bench.options.Blocking;
import io.nccl4j.bench.options.DeviceImplementation;
import io.nccl4j.bench.options.Grouping;
import io.nccl4j.bench.options.Method;
import io.nccl4j.bench.options.Options;
import io.nccl4j.bench.options.Setup;
import io.nccl4j.bench.program.Case;
import io.nccl4j.bench.program.DelegatingProgram;
import io.nccl4j.bench.program.FaultyProgram;
import io.nccl4j.bench.program.PreparedCall;
import io.nccl4j.bench.program.Program;
import io.nccl4j.bench.program.Programs;
import io.nccl4j.bench.result.IterationTimes;
import io.nccl4j.bench.result.Measurement;
import io.nccl4j.bench.result.MemoryPhases;
import io.nccl4j.bench.result.RankInfo;
import io.nccl4j.bench.result.RunInfo;
import io.nccl4j.bench.result.RunListener;
import io.nccl4j.bench.result.RunResult;
import io.nccl4j.bench.result.SizeResult;
import io.nccl4j.cuda.NcclOptions;
import java.time.Clock;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** The ways in which times are taken, communicators made and ranks divided; on the host backend. */
@Timeout(120)
class MethodTest {
  private static final Method STANDARD = Method.standard();

  private static final class Counter implements RunListener {
    private final List<SizeResult> results = new ArrayList<>();
    private RunInfo info;

    @Override
    public void started(RunInfo started) {
      info = started;
    }

    @Override
    public void measured(SizeResult result) {
      results.add(result);
    }

    @Override
    public void finished(RunResult result) {}
  }

  private static Options.Builder options(int threads, int gpus) {
    return Options.builder()
        .backend(Backend.HOST)
        .threads(threads)
        .gpus(gpus)
        .minBytes(64)
        .maxBytes(1024)
        .stepFactor(16)
        .warmup(0)
        .iterations(4);
  }

  private static RunResult run(Program program, Options options, RunListener listener)
      throws InterruptedException {
    RankRange range = RankRange.alone(options);
    return new Bench(program, options, range, listener, Clock.systemUTC()).run();
  }

  private static Method method(
      int aggregated, int cycles, int graphLaunches, boolean each, int skipped, int unaligned) {
    return new Method(
        aggregated,
        cycles,
        graphLaunches,
        Average.MAX,
        false,
        each,
        skipped,
        unaligned,
        true,
        0,
        null);
  }

  /** Every program in every way, with one rank a thread and with two. */
  @ParameterizedTest
  @CsvSource({
    "3, 1, 0, false",
    "1, 2, 0, true",
    "1, 1, 2, false",
    "2, 1, 3, false",
    "5, 1, 0, true"
  })
  void allProgramsAreRight(int aggregated, int cycles, int graphLaunches, boolean each)
      throws InterruptedException {
    for (Program program : Programs.all()) {
      for (int[] layout : new int[][] {{2, 1}, {2, 2}}) {
        Counter counter = new Counter();
        Options options =
            options(layout[0], layout[1])
                .method(method(aggregated, cycles, graphLaunches, each, each ? 1 : 0, 3))
                .build();
        RunResult result = run(program, options, counter);
        assertTrue(result.correct(), program::command);
        assertEquals(2 * cycles, counter.results.size());
        for (SizeResult size : counter.results) {
          Measurement out = size.outOfPlace();
          assertTrue(out.micros() > 0 && out.cpuMicros() > 0, out::toString);
          assertEquals(each, out.iterations() != null);
        }
        MemoryPhases phases = result.phases();
        assertTrue(phases.user() >= 2 * 1024 && phases.total() >= phases.user(), phases::toString);
      }
    }
  }

  @Test
  void faultsAreSeenThroughGraphsAndGroups() throws InterruptedException {
    for (Method method : List.of(method(2, 1, 0, false, 0, 0), method(1, 1, 1, false, 0, 1))) {
      Options options = options(2, 1).method(method).build();
      Program faulty =
          new FaultyProgram(Programs.allReduce(), FaultyProgram.Fault.BYTES_OVERWRITTEN);
      assertEquals(4, run(faulty, options, new Counter()).wrongMeasurements());
    }
  }

  @Test
  void iterationsAreTimedInEveryBlockingMode() throws InterruptedException {
    for (Blocking blocking : Blocking.values()) {
      Options options =
          options(2, 1).blocking(blocking).method(method(1, 1, 0, true, 2, 0)).build();
      RunResult result = run(Programs.allReduce(), options, new Counter());
      IterationTimes each = result.sizes().getFirst().outOfPlace().iterations();
      assertEquals(4, each.micros().size());
      assertEquals(1, each.perProcess().size());
      assertEquals(2, each.skipped());
      assertTrue(each.min() <= each.percentile(50) && each.percentile(99) == each.max());
    }
  }

  @Test
  void statisticsAreOfWhatIsNotSkipped() {
    List<Double> first = IntStream.rangeClosed(0, 10).mapToObj(i -> i == 0 ? 99.0 : i).toList();
    List<Double> second = first.stream().map(x -> x - 1).toList();
    IterationTimes times = IterationTimes.of(1, List.of(second, first));
    assertEquals(first, times.micros());
    assertEquals(1, times.min());
    assertEquals(10, times.max());
    assertEquals(5.5, times.average());
    assertEquals(5, times.percentile(50));
    assertEquals(10, times.percentile(95));
    assertEquals(10, times.percentile(99));
    assertEquals(Math.sqrt(8.25), times.deviation(), 1e-12);
    assertEquals(100 * Math.sqrt(8.25) / 5.5, times.variation(), 1e-9);
  }

  /** A team of one thread that drives rank 1 of 2 in the sum of its values with another's. */
  @Test
  void averagesAreNcclTests() {
    ThreadCrew.Meeting meeting = new ThreadCrew.Meeting(new ThreadBarrier(2), 2);
    double[] values = {10, 40};
    double[][] results = new double[2][Average.values().length];
    List<Thread> threads =
        IntStream.range(0, 2)
            .mapToObj(
                t ->
                    Thread.ofPlatform()
                        .start(
                            () -> {
                              ThreadCrew crew = new ThreadCrew(meeting, t);
                              for (Average average : Average.values()) {
                                results[t][average.ordinal()] =
                                    crew.average(average, values[t], t == 0 ? 1 : 2, 3, t == 0);
                              }
                            }))
            .toList();
    threads.forEach(
        thread -> {
          try {
            thread.join();
          } catch (InterruptedException e) {
            throw new AssertionError(e);
          }
        });
    assertArrayEquals(new double[] {10, 30, 10, 40}, results[0]);
    assertArrayEquals(results[0], results[1]);
  }

  @ParameterizedTest
  @CsvSource({
    "MOD 2, 0 1 0 1 0 1",
    "%2, 0 1 0 1 0 1",
    "div 0x3, 0 0 0 1 1 1",
    "/ 4, 0 0 0 0 1 1",
    "and 0b1, 0 1 0 1 0 1",
    "&1, 0 1 0 1 0 1",
    "OR 0x3, 3 3 3 3 7 7",
    "|3, 3 3 3 3 7 7"
  })
  void colorsAreThoseOfNcclTests(String text, String colors) {
    Grouping grouping = Grouping.of(Map.of(Grouping.VARIABLE, text));
    List<String> got =
        IntStream.range(0, 6).mapToObj(rank -> "" + grouping.color(rank, 1, 6)).toList();
    assertEquals(List.of(colors.split(" ")), got);
    // One process has all ranks: their own numbers count.
    assertEquals(grouping.color(5, 1, 6), grouping.color(5, 6, 6));
    // Three processes of two ranks: the processes' do.
    assertEquals(grouping.color(2, 1, 6), grouping.color(5, 2, 6));
  }

  @Test
  void theMaskGoesFirst() {
    Grouping grouping = Grouping.of(Map.of(Grouping.MASK, "1", Grouping.VARIABLE, "DIV 2"));
    assertEquals(1, grouping.color(3, 1, 4));
    assertNull(Grouping.of(Map.of()));
  }

  @ParameterizedTest
  @CsvSource({"4, 1", "1, 4", "2, 2"})
  void groupsRunSideBySide(int threads, int gpus) throws InterruptedException {
    Setup setup = Setup.standard().with(Map.of(Grouping.VARIABLE, "MOD 2"));
    for (Program program : Programs.all()) {
      Counter counter = new Counter();
      Options options = options(threads, gpus).root(1).setup(setup).build();
      assertTrue(run(program, options, counter).correct(), program::command);
      assertEquals(
          List.of(0, 1, 0, 1), counter.info.ranks().stream().map(RankInfo::group).toList());
      assertEquals(List.of(0, 1, 2, 3), counter.info.ranks().stream().map(RankInfo::rank).toList());
    }
    // Groups of two have no root 2.
    assertThrows(
        io.nccl4j.InvalidArgumentException.class,
        () -> options(threads, gpus).root(2).setup(setup).build().checkRanks(0, 4));
  }

  @ParameterizedTest
  @CsvSource({"2, 1", "1, 2", "2, 2"})
  void threadsMayJoinByThemselves(int threads, int gpus) throws InterruptedException {
    Setup setup =
        new Setup(true, false, 20, Setup.Registration.NONE, null, DeviceImplementation.NONE);
    Options options = options(threads, gpus).setup(setup).build();
    assertTrue(run(Programs.allReduce(), options, new Counter()).correct());
  }

  @Test
  void whatHangsEndsAfterTheTimeout() {
    Program hanging =
        new DelegatingProgram(Programs.allReduce()) {
          @Override
          public PreparedCall prepare(
              Communicator communicator,
              DeviceBuffer send,
              DeviceBuffer recv,
              Case size,
              ReduceOp op,
              Stream stream) {
            return communicator.rank() == 1
                ? stage -> {}
                : super.prepare(communicator, send, recv, size, op, stream);
          }
        };
    Setup setup =
        new Setup(false, false, 1, Setup.Registration.NONE, null, DeviceImplementation.NONE);
    Options options = options(2, 1).setup(setup).check(0).build();
    assertThrows(DeadlineException.class, () -> run(hanging, options, new Counter()));
  }

  @Test
  void theFloorIsNinetyPerCent() throws InterruptedException {
    assertTrue(STANDARD.with(Map.of(Method.MIN_BW, "10")).isEnough(9));
    assertFalse(STANDARD.with(Map.of(Method.MIN_BW, "10")).isEnough(8.99));
    assertTrue(STANDARD.isEnough(0));
    Options options = options(2, 1).method(STANDARD.with(Map.of(Method.MIN_BW, "1e9"))).build();
    assertFalse(run(Programs.allReduce(), options, new Counter()).fastEnough());
  }

  @Test
  void whatIsOfNcclAloneHasNoEffectOnTheHost() throws InterruptedException {
    Setup setup =
        new Setup(
            false,
            true,
            0,
            Setup.Registration.SYMMETRIC,
            NcclOptions.CtaPolicy.EFFICIENCY,
            DeviceImplementation.NONE,
            1,
            null,
            null,
            null);
    assertEquals(3, setup.withoutEffect(Backend.HOST).size());
    assertEquals(List.of(), setup.withoutEffect(Backend.CUDA));
    Counter counter = new Counter();
    assertTrue(run(Programs.allReduce(), options(2, 1).setup(setup).build(), counter).correct());
    assertEquals(List.of(1, 2), counter.info.ranks().stream().map(RankInfo::device).toList());
  }
}
