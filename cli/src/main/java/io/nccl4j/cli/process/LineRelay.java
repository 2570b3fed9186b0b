package io.nccl4j.cli.process;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.function.Consumer;

/**
 * Passes the lines of a process on, each with a prefix or to whoever wants them, until the process
 * closes its output.
 */
public final class LineRelay {
  /** The JVM says this once per process; rank 0's is enough. */
  public static final String INCUBATOR = "WARNING: Using incubator modules:";

  private LineRelay() {}

  /** Starts passing lines on; the thread ends with the input. */
  public static Thread start(InputStream from, String prefix, PrintStream to) {
    return start(from, line -> to.println(prefix + line));
  }

  /** Starts passing lines on as they are. */
  public static Thread start(InputStream from, Consumer<String> to) {
    return Thread.ofPlatform().daemon().name("relay").start(() -> relay(from, to));
  }

  private static void relay(InputStream from, Consumer<String> to) {
    try (BufferedReader lines =
        new BufferedReader(new InputStreamReader(from, StandardCharsets.UTF_8))) {
      String line = lines.readLine();
      while (line != null) {
        if (!line.startsWith(INCUBATOR)) {
          to.accept(line);
        }
        line = lines.readLine();
      }
    } catch (IOException e) {
      to.accept("(the rest of its output is lost: " + e.getMessage() + ")");
    }
  }
}
