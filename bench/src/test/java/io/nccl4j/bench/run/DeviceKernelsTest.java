package io.nccl4j.bench.run;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.DataType;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.bench.data.Ptx;
import io.nccl4j.bench.options.Average;
import io.nccl4j.bench.options.DeviceImplementation;
import io.nccl4j.bench.options.Method;
import io.nccl4j.bench.options.Options;
import io.nccl4j.bench.options.Setup;
import io.nccl4j.bench.program.DeviceKernel;
import io.nccl4j.bench.program.Program;
import io.nccl4j.bench.program.Programs;
import io.nccl4j.bench.result.Measurement;
import io.nccl4j.bench.result.RunInfo;
import io.nccl4j.bench.result.RunListener;
import io.nccl4j.bench.result.RunResult;
import io.nccl4j.bench.result.SizeResult;
import io.nccl4j.internal.cuda.StandIn;
import java.time.Clock;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * Kernels that communicate by themselves, over the stand-ins, whose kernels are compiled from the
 * same source as the PTX; or on GPUs, with {@code -Dnccl4j.test.standin=false}.
 */
@Timeout(120)
class DeviceKernelsTest {
  private static final Program ALL_REDUCE = Programs.allReduce();
  private static final Program ALL_TO_ALL =
      Programs.all().stream()
          .filter(program -> program.command().equals("alltoall"))
          .findFirst()
          .orElseThrow();

  private static final RunListener SILENT =
      new RunListener() {
        @Override
        public void started(RunInfo info) {}

        @Override
        public void measured(SizeResult result) {}

        @Override
        public void finished(RunResult result) {}
      };

  @BeforeEach
  void load() {
    if (Boolean.parseBoolean(System.getProperty("nccl4j.test.standin", "true"))) {
      StandIn standIn = StandIn.require();
      System.setProperty("nccl4j.cuda.library", standIn.cuda().toString());
      System.setProperty("nccl4j.nccl.library", standIn.nccl().toString());
    }
  }

  private static Setup setup(int number, int ctas) {
    return new Setup(
        false,
        false,
        0,
        Setup.Registration.SYMMETRIC,
        null,
        new DeviceImplementation(number, ctas));
  }

  /** Sizes with and without a rest, and with offsets that are no multiple of 16 bytes. */
  private static Options.Builder options(int threads, int gpus, int number) {
    return Options.builder()
        .backend(Backend.CUDA)
        .threads(threads)
        .gpus(gpus)
        .minBytes(0)
        .maxBytes(66_000)
        .stepBytes(33_000)
        .warmup(0)
        .iterations(2)
        .setup(setup(number, 2));
  }

  private static RunResult run(Program program, Options options) throws InterruptedException {
    RankRange range = RankRange.alone(options);
    return new Bench(program, options, range, SILENT, Clock.systemUTC()).run();
  }

  private static void areRight(Program program, Options options) throws InterruptedException {
    RunResult result = run(program, options);
    List<SizeResult> sizes = result.sizes();
    assertEquals(3 * options.types().size(), sizes.size());
    List<Measurement> measured = new ArrayList<>();
    sizes.forEach(size -> measured.add(size.outOfPlace()));
    sizes.stream().filter(size -> size.inPlace() != null).forEach(s -> measured.add(s.inPlace()));
    for (Measurement one : measured) {
      assertEquals(0, one.wrong().orElseThrow(), () -> program + ": " + sizes);
    }
    assertTrue(sizes.getLast().size() > 32_000);
  }

  @ParameterizedTest
  @CsvSource({"1, 2, 1", "2, 2, 1", "2, 3, 1", "1, 1, 2", "2, 2, 2", "2, 1, 1"})
  void sumsAreRight(int number, int threads, int gpus) throws InterruptedException {
    List<DataType> types =
        Arrays.stream(DataType.values())
            .filter(type -> type != DataType.BFLOAT16 && type.ordinal() < 10)
            .toList();
    areRight(ALL_REDUCE, options(threads, gpus, number).types(types).build());
  }

  @ParameterizedTest
  @CsvSource({"1, 2, 1", "2, 2, 1", "2, 3, 1", "2, 1, 2"})
  void blocksArrive(int number, int threads, int gpus) throws InterruptedException {
    areRight(
        ALL_TO_ALL,
        options(threads, gpus, number)
            .types(List.of(DataType.INT8, DataType.BFLOAT16, DataType.FLOAT32, DataType.FLOAT64))
            .build());
  }

  /** In groups, in graphs, and from the third element on. */
  @ParameterizedTest
  @CsvSource({"3, 0, 3", "1, 2, 1", "2, 2, 0"})
  void likeOperations(int aggregated, int graphLaunches, int unaligned)
      throws InterruptedException {
    Method method =
        new Method(
            aggregated,
            1,
            graphLaunches,
            Average.MEAN,
            false,
            graphLaunches == 0,
            0,
            unaligned,
            false,
            0,
            null);
    for (Program program : List.of(ALL_REDUCE, ALL_TO_ALL)) {
      for (int number = 1; number <= 2; number++) {
        areRight(program, options(2, 1, number).method(method).build());
      }
    }
  }

  /** The stand-in has neither multicast nor a network. */
  @Test
  void whatTheMachineLacksIsSaid() {
    for (int number = 3; number <= 4; number++) {
      Options options = options(2, 1, number).build();
      refused(InvalidUsageException.class, "has no multicast", ALL_REDUCE, options);
      refused(InvalidUsageException.class, "cannot use the network", ALL_TO_ALL, options);
    }
    Options host = options(2, 1, 1).backend(Backend.HOST).build();
    refused(InvalidArgumentException.class, "kernels of GPUs", ALL_REDUCE, host);
  }

  private static void refused(
      Class<? extends RuntimeException> type, String text, Program program, Options options) {
    RuntimeException e = assertThrows(type, () -> run(program, options));
    assertTrue(String.valueOf(e.getMessage()).contains(text), e.getMessage());
  }

  /** Every kernel of every type is in its module, which names the headers that it is of. */
  @ParameterizedTest
  @EnumSource
  void modulesHaveTheirKernels(DeviceKernel kernel) {
    String ptx = Ptx.read(kernel.way().module());
    assertEquals(23007, RankKernels.headers(ptx));
    int found = 0;
    for (DataType type : DataType.values()) {
      try {
        assertTrue(ptx.contains(".entry " + kernel.kernel(type) + "("), kernel.kernel(type));
        found++;
      } catch (InvalidArgumentException e) {
        assertTrue(e.problem().contains("has no " + type.label()), e.getMessage());
      }
    }
    assertTrue(found >= 7, kernel + ": " + found);
  }
}
