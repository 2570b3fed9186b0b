package io.nccl4j.bench;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.management.CompilationMXBean;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Stream;

/**
 * The just-in-time compilers' threads of this process, as Linux shows them. Where ranks take all
 * processors, a compiler at work takes time slices of milliseconds from one of them, and the
 * operation that is measured is not the one to blame.
 */
final class CompilerThreads {
  private static final Path TASKS = Path.of("/proc/self/task");
  private static final long LOOK_NANOS = 1_000_000;
  private static final int QUIET_LOOKS = 3;
  private static final long PATIENCE_NANOS = 1_000_000_000;

  private CompilerThreads() {}

  /** Waits until no compiler has been running for some milliseconds, at most a second. */
  static void awaitIdle() {
    long start = System.nanoTime();
    int quiet = 0;
    while (quiet < QUIET_LOOKS && System.nanoTime() - start < PATIENCE_NANOS) {
      LockSupport.parkNanos(LOOK_NANOS);
      quiet = anyRuns() ? 0 : quiet + 1;
    }
  }

  /** Time the compilers have worked in this process, in ms, as of the last method they finished. */
  static long compileMillis() {
    CompilationMXBean compilers = ManagementFactory.getCompilationMXBean();
    return compilers == null ? 0 : compilers.getTotalCompilationTime();
  }

  /** Whether a compiler is running now; elsewhere than on Linux nobody can tell. */
  static boolean anyRuns() {
    if (!Files.isDirectory(TASKS)) {
      return false;
    }
    try (Stream<Path> tasks = Files.list(TASKS)) {
      return tasks.anyMatch(CompilerThreads::isRunningCompiler);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private static boolean isRunningCompiler(Path task) {
    try {
      // "tid (name) state ...": the name may hold anything, the state follows the last parenthesis.
      String stat = Files.readString(task.resolve("stat"));
      int end = stat.lastIndexOf(')');
      String name = stat.substring(stat.indexOf('(') + 1, end);
      return name.matches("C[12] Compiler.*") && stat.charAt(end + 2) == 'R';
    } catch (IOException e) {
      // The thread has ended: there is no such file, or reading it fails with ESRCH.
      return false;
    }
  }
}
