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
import io.nccl4j.Group;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.bindings.cuda.Cuda;
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
import java.util.function.Consumer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/**
 * What a call and a wait cost on real GPUs, against loops in C that are compiled here and called in
 * turn with them: in the same process, on the same communicator, stream and buffer, so that nothing
 * else differs.
 */
class RealCostTest {
  private static final int ROUNDS = 1500;
  private static final int WARM_UP = 500;
  private static final int CALLS = 200;
  private static final int COUNT = 256;

  /** Most that Java may take, as a multiple of what C does: a call, and a group of two. */
  private static final double MOST_OF_CALL = 1.05;

  private static final double MOST_OF_GROUP = 1.08;

  /** Operations that end after some 10 µs, 50 µs, half a millisecond and 2 ms, and a full queue. */
  private static final int[] WAIT_COUNTS = {256, 1 << 20, 32 << 20, 128 << 20};

  private static final int FIRST_WAITS = 3000;
  private static final int SHORT_WAITS = 1000;
  private static final int LONG_WAITS = 200;
  private static final int SHORT_COUNT = 1 << 20;

  /** How much later a wait may end than a loop of cuStreamQuery in C, in ns. */
  private static final double MOST_LATE = 1000;

  private static final ThreadMXBean THREADS = (ThreadMXBean) ManagementFactory.getThreadMXBean();

  /** One rank's figures. */
  private record Cost(double c, double java, double ratio, long bytes) {}

  @TempDir private Path folder;

  /** Where one rank's calls go. */
  private record Target(
      Communicator communicator, DeviceBuffer buffer, DeviceBuffer upperHalf, Stream stream) {
    MemorySegment memory() {
      return MemorySegment.ofAddress(buffer.address());
    }

    MemorySegment nccl() {
      return ((CudaCommunicator) communicator).own().nccl().get();
    }

    MemorySegment streamHandle() {
      return CudaStream.of(stream).handle();
    }

    int peer() {
      return 1 - communicator.rank();
    }
  }

  /** A loop in C; returns its time in ns, or minus NCCL's error. */
  private interface LoopInC {
    long run(Target target) throws Throwable;
  }

  @Timeout(120)
  @Test
  void callCostsAsMuchAsFromC() throws Exception {
    MethodHandle loop = callLoop(compile());
    assertCostsAsMuch(
        "allReduce",
        MOST_OF_CALL,
        target ->
            (long)
                loop.invokeExact(
                    Nccl.ncclAllReduce$address(),
                    target.memory(),
                    (long) COUNT,
                    target.nccl(),
                    target.streamHandle(),
                    CALLS),
        target ->
            target.communicator.allReduce(
                target.buffer,
                target.buffer,
                COUNT,
                DataType.FLOAT32,
                ReduceOp.SUM,
                target.stream));
  }

  @Timeout(120)
  @Test
  void groupCostsAsMuchAsFromC() throws Exception {
    MethodHandle loop = exchangeLoop(compile());
    assertCostsAsMuch(
        "group of send and recv",
        MOST_OF_GROUP,
        target ->
            (long)
                loop.invokeExact(
                    Nccl.ncclGroupStart$address(),
                    Nccl.ncclSend$address(),
                    Nccl.ncclRecv$address(),
                    Nccl.ncclGroupEnd$address(),
                    target.memory(),
                    (long) COUNT,
                    target.peer(),
                    target.nccl(),
                    target.streamHandle(),
                    CALLS),
        target -> {
          try (Group group = Group.start()) {
            target.communicator.send(
                target.buffer, COUNT, DataType.FLOAT32, target.peer(), target.stream);
            target.communicator.recv(
                target.upperHalf, COUNT, DataType.FLOAT32, target.peer(), target.stream);
            group.launch();
          }
        });
  }

  private static void assertCostsAsMuch(
      String what, double most, LoopInC loop, Consumer<Target> call) throws Exception {
    List<Device> gpus = gpus();
    Cost[] costs = new Cost[2];
    try (Communicators ranks =
        Communicator.initAll(gpus.subList(0, 2), CommunicatorConfig.defaults())) {
      ranks.run(communicator -> costs[communicator.rank()] = measure(communicator, loop, call));
    }
    for (int rank = 0; rank < costs.length; rank++) {
      Cost cost = costs[rank];
      System.out.printf(
          "rank %d, host time of %s: %.0f ns from C, %.0f ns from Java, ratio %.3f, %d B%n",
          rank, what, cost.c, cost.java, cost.ratio, cost.bytes);
      assertEquals(0, cost.bytes);
      assertTrue(cost.ratio <= most, () -> cost.toString());
    }
  }

  private static List<Device> gpus() {
    assumeFalse(
        Boolean.parseBoolean(System.getProperty("nccl4j.test.standin", "true")),
        "needs two GPUs: -Dnccl4j.test.standin=false");
    List<Device> gpus = Device.all(Backend.CUDA);
    assumeTrue(gpus.size() > 1, () -> "needs two GPUs, there is " + gpus.size());
    return gpus;
  }

  /** One rank's figures of one size: from the call to the end of the wait, in ns. */
  private record Wait(int count, int calls, double c, double java) {}

  @Timeout(120)
  @Test
  void waitsEndWhenTheyDoInC() throws Exception {
    List<Device> gpus = gpus();
    MethodHandle loop = queryLoop(compile());
    Wait[][] waits = new Wait[2][];
    try (Communicators ranks =
        Communicator.initAll(gpus.subList(0, 2), CommunicatorConfig.defaults())) {
      ranks.run(communicator -> waits[communicator.rank()] = waits(communicator, loop));
    }
    for (int rank = 0; rank < waits.length; rank++) {
      for (Wait wait : waits[rank]) {
        System.out.printf(
            "rank %d, %d of %d floats and a wait: %.0f ns from C, %.0f from Java, %.0f later%n",
            rank, wait.calls, wait.count, wait.c, wait.java, wait.java - wait.c);
      }
    }
    for (int i = 0; i < waits[0].length; i++) {
      Wait one = waits[0][i];
      // One rank may start a little before the other, and ends its wait with it.
      double late = (one.java - one.c + waits[1][i].java - waits[1][i].c) / 2;
      // What a queue holds is given back behind the device, about 100 ns for each operation.
      assertTrue(late <= MOST_LATE + 150 * (one.calls - 1), () -> late + " ns late: " + one);
    }
  }

  private static Wait[] waits(Communicator communicator, MethodHandle loop) {
    Wait[] all = new Wait[WAIT_COUNTS.length + 1];
    try (Stream stream = communicator.device().newStream();
        DeviceBuffer buffer =
            communicator.device().allocate(DataType.FLOAT32, WAIT_COUNTS[WAIT_COUNTS.length - 1])) {
      wait(communicator, loop, stream, buffer, COUNT, 1, FIRST_WAITS);
      for (int i = 0; i < WAIT_COUNTS.length; i++) {
        int count = WAIT_COUNTS[i];
        int times = count > SHORT_COUNT ? LONG_WAITS : SHORT_WAITS;
        all[i] = wait(communicator, loop, stream, buffer, count, 1, times);
      }
      all[WAIT_COUNTS.length] = wait(communicator, loop, stream, buffer, COUNT, CALLS, LONG_WAITS);
    }
    return all;
  }

  private static Wait wait(
      Communicator communicator,
      MethodHandle loop,
      Stream stream,
      DeviceBuffer buffer,
      int count,
      int calls,
      int times) {
    double[] c = new double[times];
    double[] java = new double[times];
    for (int round = 0; round < 2 * times; round++) {
      communicator.barrier(stream);
      stream.synchronize();
      long start = System.nanoTime();
      for (int i = 0; i < calls; i++) {
        communicator.allReduce(buffer, buffer, count, DataType.FLOAT32, ReduceOp.SUM, stream);
      }
      if (round % 2 == 0) {
        inC(loop, stream);
      } else {
        stream.synchronize();
      }
      long nanos = System.nanoTime() - start;
      stream.synchronize();
      (round % 2 == 0 ? c : java)[round / 2] = nanos;
    }
    return new Wait(count, calls, median(c), median(java));
  }

  private static void inC(MethodHandle loop, Stream stream) {
    try {
      int result =
          (int) loop.invokeExact(Cuda.cuStreamQuery$address(), CudaStream.of(stream).handle());
      assertEquals(0, result);
    } catch (Throwable e) {
      throw new AssertionError(e);
    }
  }

  private Path compile() throws Exception {
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
    return library;
  }

  @SuppressWarnings("restricted")
  private static MethodHandle function(Path library, String name, FunctionDescriptor type) {
    return Linker.nativeLinker()
        .downcallHandle(
            SymbolLookup.libraryLookup(library, Arena.global()).find(name).orElseThrow(), type);
  }

  private static MethodHandle callLoop(Path library) {
    return function(
        library,
        "call_loop",
        FunctionDescriptor.of(
            ValueLayout.JAVA_LONG,
            ValueLayout.ADDRESS,
            ValueLayout.ADDRESS,
            ValueLayout.JAVA_LONG,
            ValueLayout.ADDRESS,
            ValueLayout.ADDRESS,
            ValueLayout.JAVA_INT));
  }

  private static MethodHandle exchangeLoop(Path library) {
    return function(
        library,
        "exchange_loop",
        FunctionDescriptor.of(
            ValueLayout.JAVA_LONG,
            ValueLayout.ADDRESS,
            ValueLayout.ADDRESS,
            ValueLayout.ADDRESS,
            ValueLayout.ADDRESS,
            ValueLayout.ADDRESS,
            ValueLayout.JAVA_LONG,
            ValueLayout.JAVA_INT,
            ValueLayout.ADDRESS,
            ValueLayout.ADDRESS,
            ValueLayout.JAVA_INT));
  }

  private static MethodHandle queryLoop(Path library) {
    return function(
        library,
        "query_loop",
        FunctionDescriptor.of(ValueLayout.JAVA_INT, ValueLayout.ADDRESS, ValueLayout.ADDRESS));
  }

  private static Cost measure(Communicator communicator, LoopInC loop, Consumer<Target> call) {
    double[] c = new double[ROUNDS - WARM_UP];
    double[] java = new double[c.length];
    double[] ratio = new double[c.length];
    long bytes = 0;
    try (Stream stream = communicator.device().newStream();
        DeviceBuffer buffer = communicator.device().allocate(DataType.FLOAT32, 2 * COUNT)) {
      Target target =
          new Target(communicator, buffer, buffer.slice(DataType.FLOAT32, COUNT, COUNT), stream);
      for (int round = 0; round < ROUNDS; round++) {
        long inC = 0;
        long inJava = 0;
        long before = 0;
        for (int half = 0; half < 2; half++) {
          if (half == round % 2) {
            inC = inC(loop, target);
          } else {
            before = THREADS.getCurrentThreadAllocatedBytes();
            inJava = inJava(call, target);
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

  private static long inC(LoopInC loop, Target target) {
    try {
      long nanos = loop.run(target);
      assertTrue(nanos > 0, () -> "NCCL's error: " + -nanos);
      return nanos;
    } catch (Throwable e) {
      throw new AssertionError(e);
    }
  }

  private static long inJava(Consumer<Target> call, Target target) {
    long start = System.nanoTime();
    for (int i = 0; i < CALLS; i++) {
      call.accept(target);
    }
    return System.nanoTime() - start;
  }

  private static double median(double[] values) {
    Arrays.sort(values);
    return values[values.length / 2];
  }
}
