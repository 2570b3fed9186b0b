package io.nccl4j.internal.host.kernel;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.management.ThreadMXBean;
import com.tngtech.archunit.core.domain.JavaCodeUnitAccess;
import com.tngtech.archunit.core.importer.ClassFileImporter;
import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** No order of sizes decides how well the kernels are compiled. */
@Tag("parallel")
class KernelOrderTest {
  private static final String VECTORS = "jdk.incubator.vector";
  private static final String PACKAGE = "io.nccl4j.internal.host.vector.";
  private static final String FEW = "FLOAT32 (SUM|AVG)|FLOAT64 MAX|INT32 SUM|BFLOAT16 SUM";
  private static final double MOST = 1.3;
  private static final Class<?>[] LOOP = {
    long.class, long.class, long.class, long.class, int.class, int.class
  };

  /**
   * What the compiler must inline is the Vector API's; what it inlines of ours, it decides by the
   * sizes it has seen.
   */
  @ParameterizedTest
  @ValueSource(strings = {"LaneFold", "Bfloat16Fold"})
  void loopsCallNothingButTheVectorApi(String template) throws Exception {
    Class<?> type = Class.forName(PACKAGE + template, false, getClass().getClassLoader());
    Set<String> called = new TreeSet<>();
    for (JavaCodeUnitAccess<?> call :
        new ClassFileImporter().importClass(type).getMethod("fold", LOOP).getCallsFromSelf()) {
      called.add(call.getTargetOwner().getPackageName());
    }
    assertEquals(Set.of(VECTORS), called);
  }

  /** Small blocks first, and early compilation: large ones then made objects of all vectors. */
  @Tag("long")
  @Test
  @Tag("process")
  @Timeout(value = 120, threadMode = ThreadMode.SEPARATE_THREAD)
  void largeAfterSmallAllocatesNothing() throws Exception {
    child(FEW, "small");
  }

  /** All types and reductions, with their times. */
  @Test
  @Tag("long")
  @Timeout(value = 60, unit = TimeUnit.MINUTES, threadMode = ThreadMode.SEPARATE_THREAD)
  void timesDoNotDependOnTheOrder() throws Exception {
    List<String> orders = new ArrayList<>(List.of("large", "small"));
    IntStream.rangeClosed(1, 20).forEach(seed -> orders.add("" + seed));
    List<List<String>> runs = sideBySide(orders);
    List<double[]> times = runs.stream().map(KernelOrderTest::times).toList();
    double[] medians =
        IntStream.range(0, runs.get(0).size()).mapToDouble(k -> median(times, k)).toArray();
    // A busy processor makes a run slow once; bad code is slow each time. So repeat the slow ones.
    List<Integer> doubtful =
        IntStream.range(0, times.size())
            .filter(run -> isSlow(times.get(run), medians))
            .boxed()
            .toList();
    List<List<String>> second = sideBySide(doubtful.stream().map(orders::get).toList());
    for (int i = 0; i < second.size(); i++) {
      double[] first = times.get(doubtful.get(i));
      double[] again = times(second.get(i));
      Arrays.setAll(first, k -> Math.min(first[k], again[k]));
    }
    List<String> slow = new ArrayList<>();
    for (int k = 0; k < medians.length; k++) {
      double[] sorted = column(times, k);
      String name = runs.get(0).get(k).replaceAll(":.*", "");
      double worst = sorted[sorted.length - 1];
      System.out.printf(
          "%s: best %.1f, median %.1f, worst %.1f us%n", name, sorted[0], medians[k], worst);
      if (worst > MOST * medians[k]) {
        slow.add(name + " " + Arrays.toString(sorted));
      }
    }
    assertTrue(slow.isEmpty(), slow.toString());
  }

  private static boolean isSlow(double[] times, double[] medians) {
    return IntStream.range(0, times.length).anyMatch(k -> times[k] > MOST * medians[k]);
  }

  private static double[] times(List<String> lines) {
    return lines.stream()
        .mapToDouble(line -> Double.parseDouble(line.replaceAll(".* ", "")))
        .toArray();
  }

  private static double[] column(List<double[]> times, int k) {
    return times.stream().mapToDouble(run -> run[k]).sorted().toArray();
  }

  private static double median(List<double[]> times, int k) {
    return column(times, k)[times.size() / 2];
  }

  /** A processor for each virtual machine, and one for all their compilers. */
  private static List<List<String>> sideBySide(List<String> orders) throws Exception {
    int width = Math.max(1, Runtime.getRuntime().availableProcessors() - 1);
    try (ExecutorService threads = Executors.newFixedThreadPool(width)) {
      List<Future<List<String>>> children =
          orders.stream().map(order -> threads.submit(() -> child(".*", order))).toList();
      List<List<String>> runs = new ArrayList<>();
      for (Future<List<String>> child : children) {
        runs.add(child.get());
      }
      return runs;
    }
  }

  /** Runs {@link Child} in a virtual machine as a user of the library has it. */
  private static List<String> child(String... arguments) throws Exception {
    List<String> command = new ArrayList<>();
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    command.addAll(List.of("--add-modules", VECTORS, "--enable-native-access=ALL-UNNAMED"));
    command.addAll(List.of("-cp", System.getProperty("java.class.path"), Child.class.getName()));
    command.addAll(List.of(arguments));
    Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
    try {
      process.getOutputStream().close();
      String printed = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
      assertTrue(process.waitFor(30, TimeUnit.SECONDS), printed);
      List<String> lines = printed.lines().filter(line -> line.contains(" n=")).toList();
      System.out.println(String.join(System.lineSeparator(), lines));
      assertEquals(0, process.exitValue(), printed);
      assertFalse(lines.isEmpty(), printed);
      assertTrue(lines.stream().allMatch(line -> line.contains(": 0 B ")), printed);
      return lines;
    } finally {
      process.destroyForcibly();
    }
  }

  /** Folds blocks in the given order of sizes, then large ones until they allocate nothing. */
  static final class Child {
    private static final ThreadMXBean THREADS = (ThreadMXBean) ManagementFactory.getThreadMXBean();
    private static final int LARGE = 64 << 10;
    private static final int WINDOW = 50;
    private static final int CLEAN = 40;
    private static final int PASSES = 5;
    private static final long PATIENCE = TimeUnit.SECONDS.toNanos(20);

    private final MemorySegment[] in = new MemorySegment[4];
    private final MemorySegment[] out = {Arena.global().allocate(LARGE, 64)};
    private final long[] offsets = new long[4];
    private final Scratch scratch = new Scratch();

    private Child() {
      for (int k = 0; k < in.length; k++) {
        in[k] = Arena.global().allocate(LARGE, 64);
      }
    }

    public static void main(String[] arguments) throws Exception {
      Child child = new Child();
      List<Measured> all = new ArrayList<>();
      for (DataType type : DataType.values()) {
        for (ReduceOp.Kind kind : ReduceOp.Kind.values()) {
          boolean wanted = (type + " " + kind).matches(arguments[0]);
          if (wanted && kind != ReduceOp.Kind.PRE_MUL_SUM) {
            for (int n : new int[] {2, 4}) {
              Measured measured = new Measured(type, kind, n);
              child.start(type, kind, n, arguments[1]);
              child.measure(measured, CLEAN);
              all.add(measured);
            }
          }
        }
      }
      // Whatever else the machine does, it does not slow the same ones each time.
      for (int pass = 0; pass < PASSES; pass++) {
        for (Measured measured : all) {
          child.measure(measured, CLEAN / 8);
        }
      }
      all.forEach(System.out::println);
    }

    private static final class Measured {
      final DataType type;
      final ReduceOp.Kind kind;
      final int n;
      long least = Long.MAX_VALUE;
      long best = Long.MAX_VALUE;

      Measured(DataType type, ReduceOp.Kind kind, int n) {
        this.type = type;
        this.kind = kind;
        this.n = n;
      }

      @Override
      public String toString() {
        return String.format(
            "%s %s n=%d: %d B in %d folds, %.2f", type, kind, n, least, WINDOW, best / 1e3);
      }
    }

    private void fold(DataType type, ReduceOp.Kind kind, int n, int bytes) {
      int elements = bytes / type.byteSize();
      Kernels.get(type, kind).fold(in, offsets, n, out, offsets, 1, elements, null, scratch);
    }

    private void start(DataType type, ReduceOp.Kind kind, int n, String order) throws Exception {
      if (order.equals("large")) {
        return;
      }
      int often = 64;
      int seldom = 256;
      int every = 20;
      if (!order.equals("small")) {
        Random random = new Random(Long.parseLong(order));
        often = 16 * (1 + random.nextInt(12));
        seldom = 16 * (1 + random.nextInt(200));
        every = 2 + random.nextInt(200);
      }
      for (int part = 0; part < 2; part++) {
        for (int k = 1; k <= 30_000; k++) {
          fold(type, kind, n, k % every == 0 ? seldom : often);
        }
        Thread.sleep(200); // for the compiler
      }
    }

    private void measure(Measured measured, int windows) {
      long end = System.nanoTime() + PATIENCE;
      for (int clean = 0; clean < windows && System.nanoTime() < end; ) {
        long before = THREADS.getCurrentThreadAllocatedBytes();
        for (int k = 0; k < WINDOW; k++) {
          long start = System.nanoTime();
          fold(measured.type, measured.kind, measured.n, LARGE);
          measured.best = Math.min(measured.best, System.nanoTime() - start);
        }
        long allocated = THREADS.getCurrentThreadAllocatedBytes() - before;
        measured.least = Math.min(measured.least, allocated);
        clean += allocated == 0 ? 1 : 0;
      }
    }
  }
}
