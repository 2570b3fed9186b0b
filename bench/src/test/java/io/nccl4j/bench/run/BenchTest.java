package io.nccl4j.bench.run;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.bench.options.Blocking;
import io.nccl4j.bench.options.Options;
import io.nccl4j.bench.program.Case;
import io.nccl4j.bench.program.DelegatingProgram;
import io.nccl4j.bench.program.PreparedCall;
import io.nccl4j.bench.program.Program;
import io.nccl4j.bench.program.Programs;
import io.nccl4j.bench.result.LineLatency;
import io.nccl4j.bench.result.Measurement;
import io.nccl4j.bench.result.RunInfo;
import io.nccl4j.bench.result.RunListener;
import io.nccl4j.bench.result.RunResult;
import io.nccl4j.bench.result.SizeResult;
import java.time.Clock;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.OptionalLong;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

/** Runs on the host backend. */
@Timeout(120)
class BenchTest {
  private static final class Recorder implements RunListener {
    private final List<String> calls = new ArrayList<>();

    @Override
    public void started(RunInfo info) {
      calls.add("started");
    }

    @Override
    public void measured(SizeResult result) {
      calls.add("measured " + result.size());
    }

    @Override
    public void finished(RunResult result) {
      calls.add("finished");
    }
  }

  private static Options.Builder options() {
    return Options.builder()
        .backend(Backend.HOST)
        .minBytes(64)
        .maxBytes(4096)
        .stepFactor(8)
        .warmup(0)
        .iterations(3);
  }

  private static RunResult run(Program program, Options options, RunListener listener)
      throws InterruptedException {
    RankRange range = RankRange.alone(options);
    return new Bench(program, options, range, listener, Clock.systemUTC()).run();
  }

  @ParameterizedTest
  @CsvSource({"1, 1", "2, 1", "1, 2", "2, 2"})
  void measuresAndVerifiesAllReduce(int threads, int gpus) throws InterruptedException {
    Options options = options().threads(threads).gpus(gpus).check(2).build();
    Recorder recorder = new Recorder();
    RunResult result = run(Programs.allReduce(), options, recorder);
    assertEquals(
        List.of("started", "measured 64", "measured 512", "measured 4096", "finished"),
        recorder.calls);
    assertTrue(result.correct());
    assertEquals(threads * gpus, result.info().ranks().size());
    assertEquals(Backend.HOST, result.info().backend());
    assertTrue(result.coldMicros() > 0);
    assertEquals(2L * 4096, Objects.requireNonNull(result.memory()).bufferBytes());
    assertEquals(1, result.info().found().size());
    for (SizeResult size : result.sizes()) {
      assertEquals("sum", size.redop());
      assertEquals(size.size() / 4, size.count());
      for (Measurement measured : List.of(size.outOfPlace(), size.inPlace())) {
        assertTrue(measured.micros() > 0);
        assertEquals(OptionalLong.of(0), measured.wrong());
        assertEquals(size.size() / 1e3 / measured.micros(), measured.algBw(), 1e-9);
        assertEquals(List.of(measured.micros()), measured.rounds());
      }
    }
  }

  /** How many operations were issued each time that the rank had prepared some. */
  private static final class Counting extends DelegatingProgram {
    private final List<Integer> issued = new ArrayList<>();
    private int count;

    private Counting() {
      super(Programs.allReduce());
    }

    @Override
    public PreparedCall prepare(
        Communicator communicator,
        DeviceBuffer send,
        DeviceBuffer recv,
        Case size,
        ReduceOp op,
        Stream stream) {
      if (count > 0) {
        issued.add(count);
        count = 0;
      }
      PreparedCall call = super.prepare(communicator, send, recv, size, op, stream);
      return stage -> {
        count++;
        call.issue(stage);
      };
    }
  }

  /** A placement is 2 to 4 operations that tell how long one takes, then rounds, some repeated. */
  @Test
  void anUntimedOperationGoesBeforeEachRound() throws InterruptedException {
    int iterations = 100;
    Options options =
        options().minBytes(4096).warmup(1).iterations(iterations).check(0).threads(1).build();
    Counting program = new Counting();
    RunResult result =
        new Bench(program, options, RankRange.alone(options), new Recorder(), Clock.systemUTC())
            .run();
    SizeResult size = result.sizes().getLast();
    // The last of the 51 calls at the end is not followed by another preparation.
    List<Integer> issued = program.issued.subList(0, program.issued.size() - 50);
    assertRounds(size.inPlace(), issued.getLast() - 2, iterations);
    assertRounds(size.outOfPlace(), issued.get(issued.size() - 2) - 2, iterations);
  }

  private static void assertRounds(Measurement measured, int operations, int iterations) {
    assertTrue(operations % (iterations + 1) <= 2, operations + " operations");
    assertTrue(operations / (iterations + 1) >= measured.rounds().size(), operations + "");
  }

  @ParameterizedTest
  @CsvSource({"1, 1", "3, 1", "1, 3"})
  void measuresAndVerifiesSendRecv(int threads, int gpus) throws InterruptedException {
    Options options = options().threads(threads).gpus(gpus).build();
    RunResult result = run(Programs.sendRecv(), options, new Recorder());
    assertTrue(result.correct());
    SizeResult last = result.sizes().getLast();
    assertEquals(OptionalLong.of(0), last.outOfPlace().wrong());
    assertNull(last.inPlace());
    assertEquals("none", last.redop());
  }

  @ParameterizedTest
  @EnumSource
  void everyBlockingModeRuns(Blocking blocking) throws InterruptedException {
    Options options = options().threads(2).blocking(blocking).check(0).build();
    RunResult result = run(Programs.allReduce(), options, new Recorder());
    assertEquals(OptionalLong.empty(), result.sizes().getFirst().outOfPlace().wrong());
  }

  @Test
  void warmsTheCompilersUpAndRepeatsWhatIsShort() throws InterruptedException {
    Options options = options().threads(2).warmup(1).build();
    Clock clock = Clock.systemUTC();
    RankRange range = RankRange.alone(options);
    long start = System.nanoTime();
    RunResult result = new Bench(Programs.allReduce(), options, range, new Recorder(), clock).run();
    assertTrue(System.nanoTime() - start < 20_000_000_000L);
    assertTrue(result.correct());
    Measurement measured = result.sizes().getFirst().outOfPlace();
    assertTrue(measured.rounds().size() > 1, measured::toString);
    assertTrue(measured.rounds().stream().anyMatch(r -> r <= measured.micros()));
    assertTrue(measured.rounds().stream().anyMatch(r -> r >= measured.micros()));
  }

  /** The line's latency is measured from the thread of a rank, which is bound. */
  @Test
  void measuresTheLine() throws InterruptedException {
    Options options = options().threads(2).warmup(1).build();
    boolean possible = LineProbeTest.possible();
    LineLatency line = measuredLine(options);
    // A busy machine may not run the two threads at once while they try.
    for (int i = 0; possible && !complete(line) && i < LineProbeTest.MOST_TRIES; i++) {
      line = measuredLine(options);
    }
    assertEquals(possible, line.beforeNanos().isPresent());
    assertEquals(possible, line.afterNanos().isPresent());
  }

  private static LineLatency measuredLine(Options options) throws InterruptedException {
    RankRange range = RankRange.alone(options);
    Clock clock = Clock.systemUTC();
    return new Bench(Programs.allReduce(), options, range, new Recorder(), clock).run().line();
  }

  private static boolean complete(LineLatency line) {
    return line.beforeNanos().isPresent() && line.afterNanos().isPresent();
  }

  @Test
  void everyTypeAndReductionIsRight() throws InterruptedException {
    Options options =
        options()
            .threads(3)
            .minBytes(512)
            .maxBytes(512)
            .iterations(1)
            .ops(Options.ops("all"))
            .types(Options.types("all"))
            .build();
    RunResult result = run(Programs.allReduce(), options, new Recorder());
    assertEquals(12 * 6, result.sizes().size());
    assertEquals(
        List.of(),
        result.sizes().stream()
            .filter(
                size ->
                    size.outOfPlace().wrong().orElse(1) > 0 || size.inPlace().wrong().orElse(1) > 0)
            .toList());
  }

  @Test
  void withoutWarmUpNothingRunsTwice() throws InterruptedException {
    Counting program = new Counting();
    RunResult result = run(program, options().threads(1).check(0).build(), new Recorder());
    assertEquals(1, result.sizes().getFirst().outOfPlace().rounds().size());
    assertEquals(1, result.sizes().getLast().inPlace().rounds().size());
    // The first call, then an untimed operation and a round for each placement.
    List<Integer> issued = program.issued.subList(0, program.issued.size() - 50);
    assertEquals(1 + 2 * result.sizes().size(), issued.size());
    assertEquals(1 + 3, issued.getLast());
  }

  /** Like {@link Programs#allReduce}, but writes over some elements of rank 1's result. */
  private static Program corrupting(int elements) {
    return new DelegatingProgram(Programs.allReduce()) {
      @Override
      public PreparedCall prepare(
          Communicator communicator,
          DeviceBuffer send,
          DeviceBuffer recv,
          Case size,
          ReduceOp op,
          Stream stream) {
        PreparedCall original = super.prepare(communicator, send, recv, size, op, stream);
        return stage -> {
          original.issue(stage);
          if (communicator.rank() == 1) {
            stream.fill(recv.slice(4, 4L * elements), (byte) 0x55);
          }
        };
      }
    };
  }

  @Test
  void countsCorruptedElements() throws InterruptedException {
    for (int elements : new int[] {1, 7}) {
      Options options = options().threads(2).build();
      RunResult result = run(corrupting(elements), options, new Recorder());
      assertEquals(6, result.wrongMeasurements());
      for (SizeResult size : result.sizes()) {
        assertEquals(OptionalLong.of(elements), size.outOfPlace().wrong());
        assertEquals(OptionalLong.of(elements), size.inPlace().wrong());
      }
    }
  }

  @ParameterizedTest
  @CsvSource({"2, 1", "1, 2", "2, 2"})
  void aFailingRankEndsTheRun(int threads, int gpus) {
    IllegalStateException failure = new IllegalStateException("rank 1 fails");
    Program failing =
        new DelegatingProgram(Programs.allReduce()) {
          private final AtomicInteger left = new AtomicInteger(10);

          @Override
          public PreparedCall prepare(
              Communicator communicator,
              DeviceBuffer send,
              DeviceBuffer recv,
              Case size,
              ReduceOp op,
              Stream stream) {
            PreparedCall original = super.prepare(communicator, send, recv, size, op, stream);
            return stage -> {
              if (communicator.rank() == 1 && left.decrementAndGet() == 0) {
                throw failure;
              }
              original.issue(stage);
            };
          }
        };
    Options options = options().threads(threads).gpus(gpus).build();
    assertSame(
        failure,
        assertThrows(IllegalStateException.class, () -> run(failing, options, new Recorder())));
  }

  @Test
  void aFailingListenerEndsTheRun() {
    RunListener failing =
        new RunListener() {
          @Override
          public void started(RunInfo info) {}

          @Override
          public void measured(SizeResult result) {
            throw new IllegalStateException("no room");
          }

          @Override
          public void finished(RunResult result) {}
        };
    Options options = options().threads(2).build();
    assertThrows(IllegalStateException.class, () -> run(Programs.allReduce(), options, failing));
  }
}
