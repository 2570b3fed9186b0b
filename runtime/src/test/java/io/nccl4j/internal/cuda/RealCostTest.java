package io.nccl4j.internal.cuda;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeFalse;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.sun.management.ThreadMXBean;
import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Communicators;
import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.bindings.nccl.Nccl;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.lang.management.ManagementFactory;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/**
 * What a call costs on real GPUs, against a loop in C that is compiled here and called in turn with
 * it: in the same process, on the same communicator, stream and buffer, so that nothing else
 * differs.
 */
class RealCostTest {
  private static final int ROUNDS = 1500;
  private static final int WARM_UP = 500;
  private static final int CALLS = 200;
  private static final int COUNT = 256;
  private static final double MOST = 1.05;
  private static final ThreadMXBean THREADS = (ThreadMXBean) ManagementFactory.getThreadMXBean();

  /** One rank's figures. */
  private record Cost(double c, double java, double ratio, long bytes) {}

  @TempDir private Path folder;

  @Timeout(120)
  @Test
  void callCostsAsMuchAsFromC() throws Exception {
    assumeFalse(
        Boolean.parseBoolean(System.getProperty("nccl4j.test.standin", "true")),
        "needs two GPUs: -Dnccl4j.test.standin=false");
    List<Device> gpus = Device.all(Backend.CUDA);
    assumeTrue(gpus.size() > 1, () -> "needs two GPUs, there is " + gpus.size());
    MethodHandle loop = compile();
    Cost[] costs = new Cost[2];
    try (Communicators ranks =
        Communicator.initAll(gpus.subList(0, 2), CommunicatorConfig.defaults())) {
      ranks.run(communicator -> costs[communicator.rank()] = measure(communicator, loop));
    }
    for (int rank = 0; rank < costs.length; rank++) {
      Cost cost = costs[rank];
      System.out.printf(
          "rank %d, host time of allReduce: %.0f ns from C, %.0f ns from Java, ratio %.3f, %d B%n",
          rank, cost.c, cost.java, cost.ratio, cost.bytes);
      assertEquals(0, cost.bytes);
      assertTrue(cost.ratio <= MOST, () -> cost.toString());
    }
  }

  @SuppressWarnings("restricted")
  private MethodHandle compile() throws Exception {
    Path library = folder.resolve("libcall_loop.so");
    Process gcc =
        new ProcessBuilder(
                "gcc",
                "-O2",
                "-shared",
                "-fPIC",
                "-o",
                library.toString(),
                "src/test/c/call_loop.c")
            .inheritIO()
            .start();
    assertTrue(gcc.waitFor(60, TimeUnit.SECONDS) && gcc.exitValue() == 0, "gcc");
    return Linker.nativeLinker()
        .downcallHandle(
            SymbolLookup.libraryLookup(library, Arena.global()).find("call_loop").orElseThrow(),
            FunctionDescriptor.of(
                ValueLayout.JAVA_LONG,
                ValueLayout.ADDRESS,
                ValueLayout.ADDRESS,
                ValueLayout.JAVA_LONG,
                ValueLayout.ADDRESS,
                ValueLayout.ADDRESS,
                ValueLayout.JAVA_INT));
  }

  private static Cost measure(Communicator communicator, MethodHandle loop) {
    double[] c = new double[ROUNDS - WARM_UP];
    double[] java = new double[c.length];
    double[] ratio = new double[c.length];
    long bytes = 0;
    try (Stream stream = communicator.device().newStream();
        DeviceBuffer buffer = communicator.device().allocate(DataType.FLOAT32, COUNT)) {
      for (int round = 0; round < ROUNDS; round++) {
        long inC = 0;
        long inJava = 0;
        long before = 0;
        for (int half = 0; half < 2; half++) {
          if (half == round % 2) {
            inC = inC(loop, communicator, buffer, stream);
          } else {
            before = THREADS.getCurrentThreadAllocatedBytes();
            inJava = inJava(communicator, buffer, stream);
            before -= THREADS.getCurrentThreadAllocatedBytes();
          }
          // The device is done with it, and both ranks start together again.
          communicator.barrier(stream);
          stream.synchronize();
        }
        if (round >= WARM_UP) {
          int at = round - WARM_UP;
          c[at] = (double) inC / CALLS;
          java[at] = (double) inJava / CALLS;
          ratio[at] = (double) inJava / inC;
          bytes -= before;
        }
      }
    }
    return new Cost(median(c), median(java), median(ratio), bytes / ((long) c.length * CALLS));
  }

  private static long inC(
      MethodHandle loop, Communicator communicator, DeviceBuffer buffer, Stream stream) {
    try {
      long nanos =
          (long)
              loop.invokeExact(
                  Nccl.ncclAllReduce$address(),
                  MemorySegment.ofAddress(buffer.address()),
                  (long) COUNT,
                  ((CudaCommunicator) communicator).own().nccl().get(),
                  CudaStream.of(stream).handle(),
                  CALLS);
      assertTrue(nanos > 0, () -> "ncclAllReduce: " + -nanos);
      return nanos;
    } catch (Throwable e) {
      throw new AssertionError(e);
    }
  }

  private static long inJava(Communicator communicator, DeviceBuffer buffer, Stream stream) {
    long start = System.nanoTime();
    for (int i = 0; i < CALLS; i++) {
      communicator.allReduce(buffer, buffer, COUNT, DataType.FLOAT32, ReduceOp.SUM, stream);
    }
    return System.nanoTime() - start;
  }

  private static double median(double[] values) {
    Arrays.sort(values);
    return values[values.length / 2];
  }
}
