package io.nccl4j.schedule;

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

  /** Waits until no compiler has been running for some milliseconds. */
  static void awaitIdle(long mostNanos) {
    if (!Files.isDirectory(TASKS)) {
      LockSupport.parkNanos(Math.min(GUESS_NANOS, mostNanos));
      return;
    }
    long start = System.nanoTime();
    int quiet = 0;
    while (quiet < QUIET_LOOKS && System.nanoTime() - start < mostNanos) {
      LockSupport.parkNanos(LOOK_NANOS);
      quiet = anyRuns() ? 0 : quiet + 1;
    }
  }

  private static boolean anyRuns() {
    try (DirectoryStream<Path> tasks = Files.newDirectoryStream(TASKS)) {
      for (Path task : tasks) {
        if (isRunningCompiler(task)) {
          return true;
        }
      }
    } catch (IOException e) {
      // Not to be seen: as if they were idle.
      return false;
    }
    return false;
  }

  private static boolean isRunningCompiler(Path task) {
    try {
      // "tid (name) state ...": the name may hold anything, the state follows the last parenthesis.
      String stat = Files.readString(task.resolve("stat"), StandardCharsets.ISO_8859_1);
      int end = stat.lastIndexOf(')');
      int name = stat.indexOf('(') + 1;
      return (stat.startsWith("C1 Compiler", name) || stat.startsWith("C2 Compiler", name))
          && stat.charAt(end + 2) == 'R';
    } catch (IOException e) {
      // The thread has ended.
      return false;
    }
  }
}
