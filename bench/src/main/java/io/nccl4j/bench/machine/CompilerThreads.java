package io.nccl4j.bench.machine;

import com.sun.management.HotSpotDiagnosticMXBean;
import java.io.File;
import java.io.FileInputStream;
import java.io.IOException;
import java.lang.management.CompilationMXBean;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.locks.LockSupport;

/**
 * The just-in-time compilers' threads of this process, as Linux shows them. Where ranks take all
 * processors, a compiler at work takes time slices of milliseconds from one of them, and the
 * operation that is measured is not the one to blame.
 */
public final class CompilerThreads {
  private static final File TASKS = new File("/proc/self/task");
  private static final int STAT_BYTES = 128;
  private static final long LOOK_NANOS = 500_000;
  private static final int QUIET_LOOKS = 3;
  private static final long PATIENCE_NANOS = 1_000_000_000;

  /**
   * Threads that are no compilers, by how often they were looked at: a new one gets its name a
   * little after it starts. Reading all of them each time would keep the compilers from their work.
   */
  private static final Map<String, Integer> OTHERS = new ConcurrentHashMap<>();

  private static final int ENOUGH_LOOKS = 3;
  private static final int CALLS_TO_OPTIMIZE = 20_000;

  private CompilerThreads() {}

  /** Waits until no compiler has been running for a millisecond or more, at most a second. */
  public static void awaitIdle() {
    long start = System.nanoTime();
    int quiet = 0;
    while (quiet < QUIET_LOOKS && System.nanoTime() - start < PATIENCE_NANOS) {
      LockSupport.parkNanos(LOOK_NANOS);
      quiet = anyRuns() ? 0 : quiet + 1;
    }
  }

  /** Time the compilers have worked in this process, in ms, as of the last method they finished. */
  public static long compileMillis() {
    CompilationMXBean compilers = ManagementFactory.getCompilationMXBean();
    return compilers == null ? 0 : compilers.getTotalCompilationTime();
  }

  /**
   * How often an operation must run before the optimizing compiler has seen enough of it; 0 where
   * the JVM's options leave that compiler out.
   */
  public static int callsToOptimize() {
    HotSpotDiagnosticMXBean options =
        ManagementFactory.getPlatformMXBean(HotSpotDiagnosticMXBean.class);
    boolean optimizes =
        options == null || options.getVMOption("TieredStopAtLevel").getValue().equals("4");
    return optimizes ? CALLS_TO_OPTIMIZE : 0;
  }

  /** Whether a compiler is running now; elsewhere than on Linux nobody can tell. */
  public static boolean anyRuns() {
    String[] tasks = TASKS.list();
    if (tasks == null) {
      return false;
    }
    for (String task : tasks) {
      if (OTHERS.getOrDefault(task, 0) < ENOUGH_LOOKS && isRunningCompiler(task)) {
        return true;
      }
    }
    return false;
  }

  private static boolean isRunningCompiler(String task) {
    // Little code, so that the compilers it looks at have little to do with it.
    try (FileInputStream file = new FileInputStream(TASKS + "/" + task + "/stat")) {
      // "tid (name) state ...": the name may hold anything, the state follows the last parenthesis.
      byte[] bytes = new byte[STAT_BYTES];
      String stat =
          new String(bytes, 0, Math.max(0, file.read(bytes)), StandardCharsets.ISO_8859_1);
      int end = stat.lastIndexOf(')');
      int name = stat.indexOf('(') + 1;
      // A long name loses its end, in JDK 27 its middle.
      if (stat.startsWith("C1 Comp", name)
          || stat.startsWith("C2 Comp", name)
          || stat.startsWith("JVMCI", name)) {
        return stat.charAt(end + 2) == 'R';
      }
      OTHERS.merge(task, 1, Integer::sum);
      return false;
    } catch (IOException e) {
      // The thread has ended: there is no such file, or reading it fails with ESRCH.
      return false;
    }
  }
}
