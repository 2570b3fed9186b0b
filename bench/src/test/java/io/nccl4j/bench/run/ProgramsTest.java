package io.nccl4j.bench.run;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.DataType;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.bench.options.Options;
import io.nccl4j.bench.program.FaultyProgram;
import io.nccl4j.bench.program.FaultyProgram.Fault;
import io.nccl4j.bench.program.HyperCubeProgram;
import io.nccl4j.bench.program.Program;
import io.nccl4j.bench.program.Programs;
import io.nccl4j.bench.result.RunInfo;
import io.nccl4j.bench.result.RunListener;
import io.nccl4j.bench.result.RunResult;
import io.nccl4j.bench.result.SizeResult;
import java.time.Clock;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.FieldSource;
import org.junit.jupiter.params.provider.MethodSource;

/** All programs on the host backend: right results are accepted, wrong ones are seen. */
@Timeout(120)
class ProgramsTest {
  static final List<Program> PROGRAMS = Programs.all();

  private static final List<DataType> SOME =
      List.of(DataType.FLOAT32, DataType.BFLOAT16, DataType.INT8, DataType.FLOAT8_E4M3);

  private static final RunListener SILENT =
      new RunListener() {
        @Override
        public void started(RunInfo info) {}

        @Override
        public void measured(SizeResult result) {}

        @Override
        public void finished(RunResult result) {}
      };

  private static Options.Builder options(int threads, int gpus) {
    return Options.builder()
        .backend(Backend.HOST)
        .threads(threads)
        .gpus(gpus)
        .root(-1)
        .minBytes(640)
        .maxBytes(640)
        .warmup(0)
        .iterations(1);
  }

  private static RunResult run(Program program, Options options) throws InterruptedException {
    RankRange range = RankRange.alone(options);
    return new Bench(program, options, range, SILENT, Clock.systemUTC()).run();
  }

  /** Lines that are not as they should be; in place only where there is such a form. */
  private static List<String> unexpected(RunResult result, boolean wrong) {
    List<String> lines = new ArrayList<>();
    for (SizeResult size : result.sizes()) {
      boolean inPlace = size.inPlace() != null;
      if (size.outOfPlace().wrong().orElseThrow() > 0 != wrong
          || inPlace && size.inPlace().wrong().orElseThrow() > 0 != wrong) {
        lines.add(size.toString());
      }
    }
    return lines;
  }

  @ParameterizedTest
  @FieldSource("PROGRAMS")
  void areRight(Program program) throws InterruptedException {
    areRight(program, 4, 1);
    areRight(program, 2, 2);
  }

  @Tag("long")
  @ParameterizedTest
  @FieldSource("PROGRAMS")
  void areRightInOneThread(Program program) throws InterruptedException {
    areRight(program, 1, 1);
    areRight(program, 1, 4);
  }

  private static void areRight(Program program, int threads, int gpus) throws InterruptedException {
    Options options =
        options(threads, gpus).types(SOME).minBytes(0).maxBytes(3200).stepBytes(1600).build();
    RunResult result = run(program, options);
    assertEquals(List.of(), unexpected(result, false));
    int roots = program.rooted() ? threads * gpus : 1;
    assertEquals(3 * SOME.size() * roots, result.sizes().size());
    assertEquals(
        program.inPlace(), result.sizes().stream().allMatch(size -> size.inPlace() != null));
    SizeResult last = result.sizes().getLast();
    assertTrue(last.size() > 0 && last.outOfPlace().busBw() > 0, last::toString);
  }

  @ParameterizedTest
  @FieldSource("PROGRAMS")
  void noFaultStaysUnseen(Program program) throws InterruptedException {
    for (Fault fault : Fault.values()) {
      seen(program, fault, List.of(DataType.FLOAT8_E4M3), "sum");
    }
  }

  static Stream<Arguments> everything() {
    return PROGRAMS.stream()
        .flatMap(program -> Arrays.stream(Fault.values()).map(f -> Arguments.of(program, f)));
  }

  @Tag("long")
  @ParameterizedTest
  @MethodSource("everything")
  void noFaultStaysUnseenInAnyTypeAndReduction(Program program, Fault fault)
      throws InterruptedException {
    seen(program, fault, Options.types("all"), "all");
  }

  private static void seen(Program program, Fault fault, List<DataType> types, String ops)
      throws InterruptedException {
    if (fault == Fault.OTHER_REDUCTION && !program.reduces()) {
      return;
    }
    Options options = options(4, 1).types(types).ops(Options.ops(ops)).build();
    RunResult result = run(new FaultyProgram(program, fault), options);
    assertEquals(List.of(), unexpected(result, fault != Fault.NONE), fault::toString);
  }

  @Test
  void hyperCubeTakesPowersOfTwo() {
    Options options = options(3, 1).build();
    assertEquals(
        "there are 3 ranks; hypercube needs a power of two",
        assertThrows(InvalidArgumentException.class, () -> run(new HyperCubeProgram(), options))
            .getMessage());
  }
}
