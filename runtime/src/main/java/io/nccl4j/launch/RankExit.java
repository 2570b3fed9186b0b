package io.nccl4j.launch;

import java.util.Map;

/**
 * How the process of a rank ended.
 *
 * @param rank the process's first rank
 * @param pid its process id
 * @param exitCode its exit code; 128 + n if signal n ended it
 * @param stopped whether it ended only after all were told to, so that its exit code says nothing
 */
public record RankExit(int rank, long pid, int exitCode, boolean stopped) {
  private static final int SIGNAL_BASE = 128;
  private static final Map<Integer, String> SIGNALS =
      Map.of(
          1, "HUP", 2, "INT", 3, "QUIT", 4, "ILL", 6, "ABRT", 7, "BUS", 9, "KILL", 11, "SEGV", 13,
          "PIPE", 15, "TERM");

  /** Whether it failed by itself. */
  public boolean failed() {
    return exitCode != 0 && !stopped;
  }

  /** The signal that ended it, as far as the exit code tells; 0 if none did. */
  public int signal() {
    return Math.max(0, exitCode - SIGNAL_BASE);
  }

  /** What happened, for messages: {@code rank 2 (process 4711) ended with signal 9 (KILL)}. */
  public String describe() {
    int signal = signal();
    String name = SIGNALS.containsKey(signal) ? " (" + SIGNALS.get(signal) + ")" : "";
    return "rank "
        + rank
        + " (process "
        + pid
        + ") ended with "
        + (signal > 0 ? "signal " + signal + name : "exit code " + exitCode);
  }
}
