package io.nccl4j.cli;

import io.nccl4j.UniqueId;
import io.nccl4j.bench.options.Options;
import io.nccl4j.cli.process.ChildCommand;
import io.nccl4j.cli.process.LineRelay;
import io.nccl4j.cli.process.RankEnvironment;
import io.nccl4j.cli.process.Signals;
import io.nccl4j.launch.JobExit;
import io.nccl4j.launch.RankOutput;
import io.nccl4j.launch.RankOutput.Channel;
import io.nccl4j.launch.RankProcesses;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import java.util.function.IntFunction;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Model.CommandSpec;

/**
 * A command that several processes run together, each with some of the ranks. This process makes
 * the unique id and serves the rendezvous. Rank 0's process writes to this one's output; what the
 * others say goes to the standard error, with their rank in front.
 */
final class ProcessRun {
  private static final Duration GRACE = Duration.ofSeconds(2);

  private final Context context;
  private final Options options;
  private final int procs;
  private IntFunction<Map<String, String>> variables = rank -> Map.of();

  /** A group of {@code procs} processes, each with the threads and ranks of the options. */
  ProcessRun(Context context, Options options, int procs) {
    this.context = context;
    this.options = options;
    this.procs = procs;
  }

  /** Sets variables that are different in each process; asked with its first rank. */
  ProcessRun withVariables(IntFunction<Map<String, String>> own) {
    variables = own;
    return this;
  }

  /** Runs this process's own command line in all of them; see {@link #run}. */
  int runAgain(CommandSpec spec) {
    return run(spec.root().commandLine().getParseResult().originalArgs(), null);
  }

  /**
   * Runs a command in all processes.
   *
   * @param arguments of the command line
   * @param results gets the lines of rank 0's output; null if they go to this process's
   * @return 0 if all succeeded, else the exit code of the first that did not
   * @throws io.nccl4j.SystemErrorException if a process cannot be started
   */
  int run(List<String> arguments, @Nullable Consumer<String> results) {
    UniqueId id = UniqueId.create(options.backend());
    RankProcesses.Builder builder =
        RankProcesses.builder()
            .command(ChildCommand.of(context.main(), arguments))
            .processes(procs)
            .ranksPerProcess(options.localRanks())
            .grace(GRACE)
            .environment(rank -> environment(rank, id))
            .output((rank, channel, bytes) -> pass(rank, channel, bytes, results));
    try (Signals signals = Signals.take();
        RankProcesses processes = builder.start()) {
      signals.passTo(processes);
      JobExit exit = processes.await();
      if (signals.exitCode() != 0) {
        return signals.exitCode();
      }
      exit.firstFailure().ifPresent(first -> context.err().println("nccl4j: " + first.describe()));
      return exit.exitCode();
    }
  }

  private Map<String, String> environment(int rank, UniqueId id) {
    Map<String, String> all = new HashMap<>(context.environment());
    all.putAll(variables.apply(rank));
    all.put(RankEnvironment.UNIQUE_ID, id.toString());
    all.put(RankEnvironment.CHILD, "1");
    return all;
  }

  private void pass(int rank, Channel channel, byte[] bytes, @Nullable Consumer<String> results) {
    if (rank == 0 && channel == Channel.OUT && results != null) {
      RankOutput.lines((line, unused) -> results.accept(line)).write(rank, channel, bytes);
    } else if (rank == 0) {
      (channel == Channel.OUT ? context.out() : context.err()).writeBytes(bytes);
    } else {
      String line = new String(bytes, StandardCharsets.UTF_8);
      if (!line.startsWith(LineRelay.INCUBATOR)) {
        context.err().println("[rank " + rank + "] " + line.stripTrailing());
      }
    }
  }
}
