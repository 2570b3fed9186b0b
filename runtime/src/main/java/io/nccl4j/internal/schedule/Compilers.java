package io.nccl4j.internal.schedule;

import io.nccl4j.InterruptedWaitException;
import io.nccl4j.internal.spi.Interrupts;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.locks.LockSupport;

/**
 * Lets the just-in-time compilers finish: ranks that poll keep processors from them, and a compiler
 * keeps one from a rank, for milliseconds.
 */
final class Compilers {
  private static final Path TASKS = Path.of("/proc/self/task");
  private static final long LOOK_NANOS = 1_000_000;
  private static final int QUIET_LOOKS = 5;

  /** Where nobody can tell whether they run. */
  private static final long GUESS_NANOS = 50_000_000;

  private Compilers() {}

  /**
   * Waits until no compiler has been running for some milliseconds.
   *
   * @throws InterruptedWaitException if the calling thread is interrupted
   */
  static void awaitIdle(long mostNanos) {
    if (!Files.isDirectory(TASKS)) {
      LockSupport.parkNanos(Math.min(GUESS_NANOS, mostNanos));
      return;
    }
    long start = System.nanoTime();
    int quiet = 0;
    while (quiet < QUIET_LOOKS && System.nanoTime() - start < mostNanos) {
      LockSupport.parkNanos(LOOK_NANOS);
      if (Thread.currentThread().isInterrupted()) {
        throw Interrupts.ended("the compilers");
      }
      quiet = anyRuns() ? 0 : quiet + 1;
    }
  }

  /** How long the compilers that there are have worked so far; 0 where nobody can tell. */
  static long nanos() {
    return sum(task -> Long.parseLong(read(task, "schedstat").split(" ")[0]));
  }

  private static boolean anyRuns() {
    return sum(task -> isRunning(read(task, "stat")) ? 1 : 0) > 0;
  }

  private static boolean isRunning(String stat) {
    // "tid (name) state ...": the name may hold anything, the state follows the last parenthesis.
    return stat.charAt(stat.lastIndexOf(')') + 2) == 'R';
  }

  private interface Figure {
    long of(Path task) throws IOException;
  }

  private static long sum(Figure figure) {
    long sum = 0;
    try (DirectoryStream<Path> tasks = Files.newDirectoryStream(TASKS)) {
      for (Path task : tasks) {
        sum += ofCompiler(task, figure);
      }
    } catch (IOException e) {
      // Not to be seen: as if they were idle.
      return 0;
    }
    return sum;
  }

  private static long ofCompiler(Path task, Figure figure) {
    try {
      String name = read(task, "comm");
      return name.startsWith("C1 Compiler") || name.startsWith("C2 Compiler") ? figure.of(task) : 0;
    } catch (IOException e) {
      // The thread has ended, or this kernel does not tell.
      return 0;
    }
  }

  private static String read(Path task, String file) throws IOException {
    return Files.readString(task.resolve(file), StandardCharsets.ISO_8859_1);
  }
}
