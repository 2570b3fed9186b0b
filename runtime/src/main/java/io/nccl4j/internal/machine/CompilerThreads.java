package io.nccl4j.internal.machine;

import java.io.IOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Predicate;

/** The threads of this process's just-in-time compilers, as Linux shows them. */
public final class CompilerThreads {
  private static final Path TASKS = Path.of("/proc/self/task");

  /** How the names of compilers begin: a long name loses its end, in JDK 27 its middle. */
  private static final String FAST = "C1 Comp";

  private static final String OPTIMIZING = "C2 Comp";

  /** Such as Graal. */
  private static final String OTHER_OPTIMIZING = "JVMCI";

  /** A thread gets its name when it first runs, which may be late on a busy machine. */
  private static final int LOOKS = 10;

  private static final long LOOK_NANOS = 10_000_000;

  private CompilerThreads() {}

  /** Whether the system shows them; otherwise nobody can tell whether they run. */
  public static boolean areVisible() {
    return Files.isDirectory(TASKS);
  }

  /**
   * Whether one of them optimizes, which options of the JVM can prevent; true where nobody can
   * tell. Where none does, this takes some 0.1 s.
   */
  public static boolean anyOptimizes() {
    if (!areVisible()) {
      return true;
    }
    for (int look = 0; look < LOOKS; look++) {
      if (sum(CompilerThreads::optimizes, task -> 1) > 0) {
        return true;
      }
      LockSupport.parkNanos(LOOK_NANOS);
    }
    return false;
  }

  private static boolean compiles(String name) {
    return name.startsWith(FAST) || optimizes(name);
  }

  private static boolean optimizes(String name) {
    return name.startsWith(OPTIMIZING) || name.startsWith(OTHER_OPTIMIZING);
  }

  /** Whether one is running now. */
  public static boolean anyRuns() {
    return sum(CompilerThreads::compiles, task -> isRunning(read(task, "stat")) ? 1 : 0) > 0;
  }

  /** How long those that there are have worked so far; 0 where nobody can tell. */
  public static long nanos() {
    return sum(
        CompilerThreads::compiles, task -> Long.parseLong(read(task, "schedstat").split(" ")[0]));
  }

  private static boolean isRunning(String stat) {
    // "tid (name) state ...": the name may hold anything, the state follows the last parenthesis.
    return stat.charAt(stat.lastIndexOf(')') + 2) == 'R';
  }

  private interface Figure {
    long of(Path task) throws IOException;
  }

  private static long sum(Predicate<String> names, Figure figure) {
    long sum = 0;
    try (DirectoryStream<Path> tasks = Files.newDirectoryStream(TASKS)) {
      for (Path task : tasks) {
        sum += of(task, names, figure);
      }
    } catch (IOException e) {
      // Not to be seen: as if they were idle.
      return 0;
    }
    return sum;
  }

  private static long of(Path task, Predicate<String> names, Figure figure) {
    try {
      return names.test(read(task, "comm")) ? figure.of(task) : 0;
    } catch (IOException e) {
      // The thread has ended, or this kernel does not tell.
      return 0;
    }
  }

  private static String read(Path task, String file) throws IOException {
    return Files.readString(task.resolve(file), MachineFiles.CHARSET);
  }
}
