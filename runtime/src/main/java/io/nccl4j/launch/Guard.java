package io.nccl4j.launch;

import java.io.IOException;
import java.io.OutputStream;
import java.lang.ProcessBuilder.Redirect;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * A small shell in a session of its own that ends the ranks when this process is gone, however that
 * went: it reads from a pipe that nobody else writes to, and the end of that is the end of this
 * process. It also sends the signals, to groups of processes, which Java cannot.
 *
 * <p>A rank leads a session and a group with its own process id as number. It may not have got that
 * far when the first signal comes: then the process itself gets it.
 */
final class Guard {
  private static final String SCRIPT =
      """
      trap '' HUP INT TERM
      tell() { kill -s "$1" -- "-$2" 2>/dev/null || kill -s "$1" "$2" 2>/dev/null; }
      ranks=' '
      while read -r word rank; do
        case $word in
          start) ranks="$ranks$rank " ;;
          end)
            kill -s KILL -- "-$rank" 2>/dev/null
            ranks="${ranks%% $rank *} ${ranks#* $rank }"
            ;;
          *) tell "$word" "$rank" ;;
        esac
      done
      for rank in $ranks; do tell TERM "$rank"; tell CONT "$rank"; done
      tenths=$1
      while [ "$tenths" -gt 0 ]; do
        some=
        for rank in $ranks; do
          if kill -s 0 -- "-$rank" 2>/dev/null; then some="$some $rank"; fi
        done
        ranks=$some
        [ -n "$ranks" ] || exit 0
        sleep 0.1
        tenths=$((tenths - 1))
      done
      for rank in $ranks; do tell KILL "$rank"; done
      """;

  private static final int TENTH_MILLIS = 100;

  private final Process process;
  private final OutputStream pipe;

  private Guard(Process process) {
    this.process = process;
    this.pipe = process.getOutputStream();
  }

  /**
   * Starts one.
   *
   * @param grace between SIGTERM and SIGKILL, when this process is gone
   */
  static Guard start(Duration grace) throws IOException {
    String tenths = Long.toString(TimeUnit.MILLISECONDS.convert(grace) / TENTH_MILLIS);
    return new Guard(
        new ProcessBuilder("setsid", "sh", "-c", SCRIPT, "nccl4j-guard", tenths)
            .redirectOutput(Redirect.DISCARD)
            .redirectError(Redirect.DISCARD)
            .start());
  }

  /** Completes when the guard has ended, which it should not before {@link #close}. */
  CompletableFuture<?> ended() {
    return process.onExit();
  }

  /** Whether it can be told anything. */
  boolean isAlive() {
    return process.isAlive();
  }

  /** From now on a rank ends with this process. */
  void watch(long pid) throws IOException {
    say("start", pid);
  }

  /** A rank has ended; what it has started and left behind in its group ends now. */
  void forget(long pid) throws IOException {
    say("end", pid);
  }

  /** Sends a signal to a rank and what it started. */
  void signal(String name, long pid) throws IOException {
    say(name, pid);
  }

  private synchronized void say(String word, long pid) throws IOException {
    pipe.write((word + " " + pid + "\n").getBytes(StandardCharsets.US_ASCII));
    pipe.flush();
  }

  /** Ends it, and the ranks that have not ended. */
  void close() {
    try {
      pipe.close();
    } catch (IOException e) {
      // Something could not be told it any more: it is gone, as ended() says.
      process.destroyForcibly();
    }
  }
}
