package io.nccl4j.bindings;

import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.function.Executable;

/** What the tests of {@link Libc} share. */
final class LibcConditions {
  private static final int REPEATS = 64;

  private LibcConditions() {}

  /** Skips elsewhere; on a supported system the C library must be there. */
  static void requireLibc() {
    boolean supported =
        System.getProperty("os.name").equals("Linux")
            && List.of("amd64", "aarch64").contains(System.getProperty("os.arch"));
    assumeTrue(supported, () -> "skipped: " + Libc.unavailableReason());
    assertTrue(Libc.isAvailable(), Libc.unavailableReason());
  }

  /** Runs the failing call many times; the descriptors of this process must not grow with it. */
  static LibcException failsWithoutLeak(Executable call) {
    LibcException failure = assertThrows(LibcException.class, call);
    long before = openFds();
    for (int i = 0; i < REPEATS; i++) {
      assertThrows(LibcException.class, call);
    }
    // The virtual machine opens a file now and then: only growth with the calls counts.
    assertTrue(openFds() - before < REPEATS / 2, "descriptors leak: " + failure.getMessage());
    return failure;
  }

  static long openFds() {
    try (Stream<Path> fds = Files.list(Path.of("/proc/self/fd"))) {
      return fds.count();
    } catch (IOException e) {
      throw new AssertionError(e);
    }
  }

  /** Starts a small Java process with this class path. */
  static Process startJava(List<String> options, Class<?> main, String... arguments)
      throws IOException {
    List<String> command = new ArrayList<>();
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    command.addAll(List.of("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx64m"));
    command.addAll(options);
    command.addAll(List.of("-cp", System.getProperty("java.class.path"), main.getName()));
    command.addAll(List.of(arguments));
    return new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
  }
}
