package io.nccl4j.launch;

import io.nccl4j.internal.check.Require;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.function.ObjIntConsumer;

/**
 * Gets what the processes of a job write, line by line. It is called by several threads, but by one
 * at a time. If it throws, all processes are ended, and {@link RankProcesses#await} throws the
 * same.
 */
@FunctionalInterface
public interface RankOutput {
  /** What a process writes to. */
  enum Channel {
    /** The standard output. */
    OUT,
    /** The standard error. */
    ERR
  }

  /** The most bytes of a line that are passed on at once. */
  int MAX_BYTES = 1 << 16;

  /**
   * Gets a line with the newline that ends it. The last line may have none. A line longer than
   * {@link #MAX_BYTES} comes in parts of that size, of which only the last one ends with a newline.
   *
   * @param rank the process's first rank
   * @param bytes what it wrote, unchanged; the callee may keep the array
   */
  void write(int rank, Channel channel, byte[] bytes);

  /** Called once, after the last line of all. */
  default void end() {}

  /**
   * Writes lines to two streams, with the rank in front: {@code [2] text}. No two lines are mixed:
   * one longer than {@link #MAX_BYTES} is broken where something else comes in between.
   */
  static RankOutput prefixed(PrintStream out, PrintStream err) {
    return new PrintedOutput(Require.present(out, "stream"), Require.present(err, "stream"), true);
  }

  /** Writes lines to two streams, without the rank, otherwise as {@link #prefixed} does. */
  static RankOutput plain(PrintStream out, PrintStream err) {
    return new PrintedOutput(Require.present(out, "stream"), Require.present(err, "stream"), false);
  }

  /**
   * Passes on lines of both channels as text in UTF-8, without their ends. Of a line longer than
   * {@link #MAX_BYTES}, each part is passed on as a line.
   *
   * @param lines gets the line and the rank
   */
  static RankOutput lines(ObjIntConsumer<String> lines) {
    Require.present(lines, "consumer");
    return (rank, channel, bytes) -> {
      String text = new String(bytes, StandardCharsets.UTF_8);
      lines.accept(text.endsWith("\n") ? text.substring(0, text.length() - 1) : text, rank);
    };
  }
}
