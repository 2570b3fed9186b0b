package io.nccl4j.cli;

import io.nccl4j.SystemErrorException;
import io.nccl4j.UniqueId;
import io.nccl4j.bench.options.Options;
import java.io.IOException;
import java.lang.ProcessBuilder.Redirect;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import java.util.function.IntFunction;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Model.CommandSpec;

/**
 * Processes that run one command together, each with some of the ranks. This process makes the
 * unique id and serves the rendezvous. Rank 0's process writes to this one's output; what the
 * others say goes to the standard error, with their rank in front.
 *
 * <p>They live and die together: if one fails the others are ended, if this process is ended it
 * ends them, and if it is killed they notice by {@link ParentWatch}.
 */
final class RankProcesses {
  private static final long GRACE_SECONDS = 2;
  private static final int SIGNAL_BASE = 128;

  private record Child(int firstRank, Process process) {}

  private final Context context;
  private final Options options;
  private final int procs;
  private final List<Child> children = new ArrayList<>();
  private final List<Thread> relays = new ArrayList<>();
  private final BlockingQueue<Child> ended = new LinkedBlockingQueue<>();
  private IntFunction<Map<String, String>> variables = rank -> Map.of();
  private volatile boolean interrupted;

  /** A group of {@code procs} processes, each with the threads and ranks of the options. */
  RankProcesses(Context context, Options options, int procs) {
    this.context = context;
    this.options = options;
    this.procs = procs;
  }

  /** Sets variables that are different in each process; asked with its first rank. */
  RankProcesses withVariables(IntFunction<Map<String, String>> own) {
    variables = own;
    return this;
  }

  /** Runs this process's own command line in all of them; see {@link #run(List)}. */
  int runAgain(CommandSpec spec) throws InterruptedException {
    return run(spec.root().commandLine().getParseResult().originalArgs());
  }

  /**
   * Runs a command in all processes.
   *
   * @param arguments of the command line
   * @return 0 if all succeeded, else the exit code of the first that did not
   * @throws SystemErrorException if a process cannot be started
   */
  int run(List<String> arguments) throws InterruptedException {
    return run(arguments, null);
  }

  /**
   * Runs a command in all processes.
   *
   * @param results gets the lines of rank 0's output; null if they go to this process's
   * @return as {@link #run(List)} does
   */
  int run(List<String> arguments, @Nullable Consumer<String> results) throws InterruptedException {
    UniqueId id = UniqueId.create(options.backend());
    Thread hook = new Thread(this::endAllOnShutdown, "end-processes");
    Runtime.getRuntime().addShutdownHook(hook);
    try {
      List<String> command = ChildCommand.of(context.main(), arguments);
      for (int p = 0; p < procs; p++) {
        start(command, p * options.localRanks(), id, results);
      }
      return await();
    } finally {
      endAll();
      for (Thread relay : relays) {
        relay.join(TimeUnit.SECONDS.toMillis(GRACE_SECONDS));
      }
      if (!interrupted) {
        Runtime.getRuntime().removeShutdownHook(hook);
      }
    }
  }

  private void start(
      List<String> command, int firstRank, UniqueId id, @Nullable Consumer<String> results) {
    ProcessBuilder builder = new ProcessBuilder(command);
    Map<String, String> environment = builder.environment();
    environment.putAll(context.environment());
    environment.putAll(variables.apply(firstRank));
    environment.put(RankEnvironment.RANK, Integer.toString(firstRank));
    environment.put(RankEnvironment.NRANKS, Integer.toString(procs * options.localRanks()));
    environment.put(RankEnvironment.LOCAL_NRANKS, Integer.toString(procs * options.localRanks()));
    environment.put(RankEnvironment.UNIQUE_ID, id.toString());
    environment.put(RankEnvironment.LAUNCHER, RankEnvironment.OWN);
    environment.put(RankEnvironment.CHILD, "1");
    if (firstRank == 0) {
      builder.redirectOutput(results == null ? Redirect.INHERIT : Redirect.PIPE);
      builder.redirectError(Redirect.INHERIT);
    } else {
      builder.redirectErrorStream(true);
    }
    try {
      Process process = builder.start();
      Child child = new Child(firstRank, process);
      synchronized (children) {
        children.add(child);
      }
      if (firstRank > 0) {
        String prefix = "[rank " + firstRank + "] ";
        relays.add(LineRelay.start(process.getInputStream(), prefix, context.err()));
      } else if (results != null) {
        relays.add(LineRelay.start(process.getInputStream(), results));
      }
      Thread.ofPlatform().daemon().name("wait-" + firstRank).start(() -> awaitEnd(child));
    } catch (IOException e) {
      throw (SystemErrorException)
          new SystemErrorException(
                  "cannot start " + command.getFirst() + " for rank " + firstRank + ": " + e,
                  "check the limits on processes and memory")
              .causedBy(e);
    }
  }

  private void awaitEnd(Child child) {
    while (true) {
      try {
        child.process().waitFor();
        ended.add(child);
        return;
      } catch (InterruptedException e) {
        // Nobody interrupts this thread on purpose; the process still has to be waited for.
        continue;
      }
    }
  }

  private int await() throws InterruptedException {
    for (int i = 0; i < procs; i++) {
      Child child = ended.take();
      int code = child.process().exitValue();
      if (code != 0) {
        if (!interrupted) {
          context.err().println("nccl4j: " + describe(child, code));
        }
        return code;
      }
    }
    return 0;
  }

  private String describe(Child child, int code) {
    int last = child.firstRank() + options.localRanks() - 1;
    String ranks =
        child.firstRank() == last ? "rank " + last : "ranks " + child.firstRank() + " to " + last;
    return ranks
        + " (process "
        + child.process().pid()
        + ") ended with "
        + (code > SIGNAL_BASE ? "signal " + (code - SIGNAL_BASE) : "exit code " + code);
  }

  private void endAllOnShutdown() {
    interrupted = true;
    endAll();
  }

  private void endAll() {
    List<Process> all;
    synchronized (children) {
      all = children.stream().map(Child::process).toList();
    }
    Processes.end(all);
  }
}
