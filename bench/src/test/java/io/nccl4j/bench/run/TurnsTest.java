package io.nccl4j.bench.run;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.AbortedException;
import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.bench.options.Average;
import io.nccl4j.bench.options.Method;
import io.nccl4j.bench.options.Options;
import io.nccl4j.bench.options.TurnSeat;
import io.nccl4j.bench.program.Case;
import io.nccl4j.bench.program.DelegatingProgram;
import io.nccl4j.bench.program.PreparedCall;
import io.nccl4j.bench.program.Programs;
import io.nccl4j.bench.result.RunListener;
import io.nccl4j.bench.result.RunResult;
import io.nccl4j.bench.result.SizeResult;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Clock;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Two runs of one process that measure in turns, on the host backend. */
@Timeout(120)
class TurnsTest {
  @TempDir Path folder;

  /** AllReduce that notes the turn at each operation. */
  private static final class Noting extends DelegatingProgram {
    private final TurnFile turns;
    private final int side;
    private final ConcurrentLinkedQueue<Long> seen = new ConcurrentLinkedQueue<>();

    Noting(TurnFile turns, int side) {
      super(Programs.allReduce());
      this.turns = turns;
      this.side = side;
    }

    @Override
    public PreparedCall prepare(
        Communicator communicator,
        DeviceBuffer send,
        DeviceBuffer recv,
        Case size,
        ReduceOp op,
        Stream stream) {
      PreparedCall operation = super.prepare(communicator, send, recv, size, op, stream);
      return stage -> {
        // In this order: when the other one leaves, the turn does not change any more.
        long number = turns.number();
        if (!turns.hasLeft(1 - side)) {
          seen.add(number);
        }
        operation.issue(stage);
      };
    }
  }

  private static CompletableFuture<RunResult> start(Noting program, Path path, int graphs) {
    Method method =
        new Method(1, 1, graphs, Average.MEAN, false, false, 0, 0, false, 0, null)
            .with(Map.of(TurnSeat.VARIABLE, new TurnSeat(program.side, path).toString()));
    Options options =
        Options.builder()
            .backend(Backend.HOST)
            .threads(2)
            .minBytes(64)
            .maxBytes(65536)
            .stepFactor(1024)
            .warmup(0)
            .iterations(3)
            .method(method)
            .build();
    CompletableFuture<RunResult> result = new CompletableFuture<>();
    Thread.ofPlatform()
        .daemon()
        .start(
            () -> {
              try {
                RankRange range = RankRange.alone(options);
                RunListener listener = RunListener.all(List.of());
                Clock clock = Clock.systemUTC();
                RunResult finished;
                try {
                  finished = new Bench(program, options, range, listener, clock).run();
                } finally {
                  // First, as whoever waits for the result closes the file.
                  program.turns.leave(program.side);
                }
                result.complete(finished);
              } catch (Throwable e) {
                result.completeExceptionally(e);
              }
            });
    return result;
  }

  @ParameterizedTest
  @ValueSource(ints = {0, 2})
  void operationsAreIssuedInTheRunsOwnTurnsOnly(int graphs) throws Exception {
    Path path = folder.resolve("turns");
    try (TurnFile file = TurnFile.create(path)) {
      List<Noting> programs = List.of(new Noting(file, 0), new Noting(file, 1));
      List<CompletableFuture<RunResult>> results = new ArrayList<>();
      results.add(start(programs.get(0), path, graphs));
      while (file.number() == 0 && !results.getFirst().isDone()) {
        Thread.sleep(1);
      }
      results.add(start(programs.get(1), path, graphs));
      for (CompletableFuture<RunResult> result : results) {
        for (SizeResult size : result.get(60, TimeUnit.SECONDS).sizes()) {
          assertEquals(30, size.outOfPlace().rounds().size());
          assertEquals(0, size.outOfPlace().wrong().orElseThrow());
        }
      }
      for (Noting program : programs) {
        List<Long> seen = program.seen.stream().distinct().sorted().toList();
        assertTrue(seen.stream().allMatch(number -> number % 2 == program.side), seen::toString);
        // Two sizes, in place and not; a graph's operations are issued once.
        int least = graphs == 0 ? 4 * 30 - 1 : 4;
        assertTrue(seen.size() >= least, seen.size() + " turns of side " + program.side);
      }
    }
  }

  @Test
  void nobodyWaitsForAnotherRunWhenTheGiverHasEnded() throws Exception {
    Process ended = new ProcessBuilder("true").start();
    ended.waitFor();
    Path path = folder.resolve("turns");
    try (TurnFile file = TurnFile.create(path, ended.pid())) {
      Noting alone = new Noting(file, 0);
      Exception e =
          assertThrows(Exception.class, () -> start(alone, path, 0).get(60, TimeUnit.SECONDS));
      AbortedException cause = (AbortedException) e.getCause();
      assertTrue(String.valueOf(cause.getMessage()).contains("has ended"), cause::toString);
    }
  }

  @ParameterizedTest
  @CsvSource({"2:/x", "0:", "/x", "''", "-1:/x"})
  void refusesAVariableThatNamesNoSeat(String text) {
    Map<String, String> environment = Map.of(TurnSeat.VARIABLE, text);
    InvalidArgumentException e =
        assertThrows(InvalidArgumentException.class, () -> Method.standard().with(environment));
    assertTrue(String.valueOf(e.getMessage()).contains("NCCL4J_TURNS is '" + text), e::toString);
    assertNull(Method.standard().with(Map.of()).seat());
  }

  @Test
  void refusesFilesThatAreNotOfTurns() throws IOException {
    Path absent = folder.resolve("absent");
    assertThrows(InvalidArgumentException.class, () -> TurnFile.open(absent));
    for (int bytes : new int[] {0, 4096, 5000}) {
      Path other = Files.write(folder.resolve("other"), new byte[bytes]);
      InvalidArgumentException e =
          assertThrows(InvalidArgumentException.class, () -> TurnFile.open(other));
      assertTrue(String.valueOf(e.getMessage()).contains("not a file of turns"), e::toString);
    }
  }
}
