package io.nccl4j.cli;

import io.nccl4j.InvalidUsageException;
import io.nccl4j.SystemErrorException;
import io.nccl4j.bench.options.TurnSeat;
import io.nccl4j.bench.run.TurnFile;
import io.nccl4j.cli.process.Processes;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/**
 * A pair of commands that measure in turns. Each starts in its own turn, too: while one loads its
 * classes the other one's ranks sleep. If one fails, or this process is ended, both are.
 */
final class TakingTurns {
  private static final long LOOK_MILLIS = 1;
  private static final List<Integer> RESULT_CODES =
      List.of(ExitCode.OK.number(), ExitCode.WRONG_DATA.number());

  /**
   * One run.
   *
   * @param command for the shell, which gets {@code -J results} at its end
   * @param results where the command has to write its JSON
   */
  record Side(String command, Path results) {
    /** What the command prints. */
    Path output() {
      return results.resolveSibling(
          results.getFileName().toString().replaceFirst("\\.json$", ".txt"));
    }
  }

  private final Context context;
  private final List<Side> sides;
  private final List<Process> processes = new ArrayList<>();
  private final Thread hook = new Thread(this::endAll, "end-turns");

  private TakingTurns(Context context, List<Side> sides) {
    this.context = context;
    this.sides = sides;
  }

  /**
   * Runs both to their ends, in turns of a round or, if {@code whole}, of a run.
   *
   * @param sides in the order in which they begin
   * @throws InvalidUsageException if a command fails, takes no turns, or writes no results
   * @throws SystemErrorException if one cannot be started
   * @throws InterruptedException if the caller was interrupted
   */
  static void run(Context context, List<Side> sides, boolean whole) throws InterruptedException {
    TakingTurns turns = new TakingTurns(context, sides);
    Runtime.getRuntime().addShutdownHook(turns.hook);
    try {
      if (whole) {
        turns.runByRun();
      } else {
        turns.roundByRound();
      }
    } finally {
      turns.endAll();
      turns.forgetHook();
    }
  }

  private void runByRun() throws InterruptedException {
    for (int i = 0; i < sides.size(); i++) {
      start(i, Map.of()).waitFor();
      check(i);
    }
  }

  private void roundByRound() throws InterruptedException {
    // Its name tells the results of this pair from others.
    String name = "turns-" + ProcessHandle.current().pid() + "-" + System.nanoTime();
    Path path = sides.getFirst().results().resolveSibling(name);
    try (TurnFile file = TurnFile.create(path)) {
      start(0, variable(0, path));
      boolean[] ended = new boolean[2];
      while (!ended[0] || !ended[1]) {
        if (processes.size() == 1 && file.number() > 0) {
          start(1, variable(1, path));
        }
        for (int i = 0; i < processes.size(); i++) {
          if (!ended[i] && processes.get(i).waitFor(LOOK_MILLIS, TimeUnit.MILLISECONDS)) {
            ended[i] = true;
            check(i);
            if (file.number() <= i) {
              throw failed(i, "took no turns", "name commands that measure, or use --whole");
            }
            file.leave(i);
          }
        }
      }
    } finally {
      delete(path);
    }
  }

  private static Map<String, String> variable(int side, Path file) {
    return Map.of(TurnSeat.VARIABLE, new TurnSeat(side, file).toString());
  }

  private Process start(int i, Map<String, String> variables) {
    Side side = sides.get(i);
    String quoted = "'" + side.results().toString().replace("'", "'\\''") + "'";
    ProcessBuilder builder =
        new ProcessBuilder("sh", "-c", side.command() + " -J " + quoted)
            .redirectErrorStream(true)
            .redirectOutput(side.output().toFile());
    Map<String, String> environment = builder.environment();
    environment.putAll(context.environment());
    environment.keySet().removeAll(List.of(Context.TERMINAL, TurnSeat.VARIABLE));
    environment.putAll(variables);
    try {
      Process process = builder.start();
      process.getOutputStream().close();
      synchronized (processes) {
        processes.add(process);
      }
      return process;
    } catch (IOException e) {
      throw (SystemErrorException)
          new SystemErrorException(
                  "cannot start sh for '" + side.command() + "': " + e,
                  "check the limits on processes, and that sh is in the PATH")
              .causedBy(e);
    }
  }

  /** That a command which has ended has done what it should. */
  private void check(int i) {
    int code = processes.get(i).exitValue();
    if (!RESULT_CODES.contains(code)) {
      throw failed(i, "ended with exit code " + code, "see what it printed");
    }
    if (!Files.exists(sides.get(i).results())) {
      throw failed(i, "wrote no results", "name a command that ends with options and supports -J");
    }
  }

  private InvalidUsageException failed(int i, String what, String remedy) {
    Side side = sides.get(i);
    return new InvalidUsageException(
        "'" + side.command() + "' " + what + lastLine(side.output()), remedy);
  }

  private static String lastLine(Path output) {
    try (Stream<String> lines = Files.lines(output)) {
      return lines
          .filter(line -> !line.isBlank())
          .reduce((one, next) -> next)
          .map(line -> "; its last line: " + line.strip())
          .orElse("");
    } catch (IOException | UncheckedIOException e) {
      return "; its output cannot be read: " + e;
    }
  }

  private static void delete(Path file) {
    try {
      Files.deleteIfExists(file);
    } catch (IOException e) {
      throw (SystemErrorException)
          new SystemErrorException("cannot delete " + file + ": " + e, "delete it").causedBy(e);
    }
  }

  private void endAll() {
    List<Process> all;
    synchronized (processes) {
      all = List.copyOf(processes);
    }
    Processes.end(all);
  }

  private void forgetHook() {
    try {
      Runtime.getRuntime().removeShutdownHook(hook);
    } catch (IllegalStateException e) {
      // The machine is shutting down, and the hook does the same.
      return;
    }
  }
}
