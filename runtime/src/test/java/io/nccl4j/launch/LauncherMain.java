package io.nccl4j.launch;

import java.time.Duration;
import java.util.Arrays;

/** Starts processes, and prints their ids, until it is killed. */
public final class LauncherMain {
  private LauncherMain() {}

  /**
   * Starts processes.
   *
   * @param arguments their number, the milliseconds of grace, and the command
   */
  public static void main(String[] arguments) {
    String[] command = Arrays.copyOfRange(arguments, 2, arguments.length);
    try (RankProcesses ranks =
        RankProcesses.builder()
            .processes(Integer.parseInt(arguments[0]))
            .grace(Duration.ofMillis(Long.parseLong(arguments[1])))
            .command(command)
            .output(RankOutput.plain(System.out, System.err))
            .start()) {
      System.out.println("started");
      ranks.await();
    }
  }
}
