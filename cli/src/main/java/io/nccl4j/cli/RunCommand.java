package io.nccl4j.cli;

import io.nccl4j.InvalidArgumentException;
import io.nccl4j.cli.process.RankEnvironment;
import io.nccl4j.cli.process.Signals;
import io.nccl4j.launch.JobExit;
import io.nccl4j.launch.RankOutput;
import io.nccl4j.launch.RankProcesses;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine;
import picocli.CommandLine.Command;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParameterException;
import picocli.CommandLine.Parameters;

/** {@code nccl4j run}: starts a program as the ranks of a job. */
@Command(
    name = "run",
    description =
        "Starts a program several times, as the ranks of a job; Launch.detect() finds them.",
    footer = {
      "",
      "Options come before the program. If a rank fails, the others have 2 s to say what they have",
      "noticed, then they are ended. On several machines, start the same command on each, with its",
      "number as --node-rank, and the same secret.",
      "",
      "Exit code: that of the first rank that failed, 128+n if signal n ended it; 0 if none"
          + " failed;",
      "2 bad option or no such program, 3 the ranks could not be started or watched."
    })
final class RunCommand extends Subcommand {
  private static final int MILLIS = 1000;

  @Option(
      names = {"-n", "--procs"},
      paramLabel = "N",
      required = true,
      description = "Processes to start on this machine, one rank each.")
  private int procs;

  @Option(
      names = "--nodes",
      paramLabel = "N",
      defaultValue = "1",
      description = "Machines that run this command; default ${DEFAULT-VALUE}.")
  private int nodes;

  @Option(
      names = "--node-rank",
      paramLabel = "K",
      defaultValue = "0",
      description = "Number of this machine, from 0; default ${DEFAULT-VALUE}.")
  private int nodeRank;

  @Option(
      names = "--rendezvous",
      paramLabel = "ADDRESS",
      description =
          "tcp://HOST:PORT where machine 0 listens; default NCCL4J_RENDEZVOUS of the environment.")
  private @Nullable String rendezvous;

  @Option(
      names = "--secret-file",
      paramLabel = "FILE",
      description =
          "File with the secret of all machines; default NCCL4J_SECRET or NCCL4J_SECRET_FILE of the"
              + " environment.")
  private @Nullable Path secretFile;

  @Option(
      names = "--grace",
      paramLabel = "SECONDS",
      defaultValue = "10",
      description = "Time between SIGTERM and SIGKILL; default ${DEFAULT-VALUE}.")
  private double grace;

  @Option(names = "--no-prefix", description = "Do not put the rank in front of lines.")
  private boolean noPrefix;

  @Option(
      names = "--output",
      paramLabel = "DIR",
      description = "Write what rank R says to DIR/rank-R.log instead.")
  private @Nullable Path output;

  @Parameters(arity = "1..*", paramLabel = "COMMAND", description = "Program and its arguments.")
  private List<String> command = new ArrayList<>();

  /** The command. */
  RunCommand(Context context) {
    super(context);
  }

  /** Its command line, which leaves the program's options alone. */
  static CommandLine of(Context context) {
    return new CommandLine(new RunCommand(context)).setStopAtPositional(true);
  }

  @Override
  public Integer call() {
    JobExit exit;
    String signal;
    int signalled;
    try (Signals signals = Signals.take();
        RankProcesses ranks = start()) {
      signals.passTo(ranks);
      exit = ranks.await();
      signal = signals.received();
      signalled = signals.exitCode();
    }
    if (signalled != 0) {
      context.err().println("nccl4j: ended by SIG" + signal);
      return signalled;
    }
    if (exit.exitCode() != 0) {
      context.err().println("nccl4j: " + exit.describe());
    }
    return exit.exitCode();
  }

  private RankProcesses start() {
    try {
      RankProcesses.Builder builder =
          RankProcesses.builder()
              .processes(procs)
              .command(command)
              .grace(grace())
              .output(
                  noPrefix
                      ? RankOutput.plain(context.out(), context.err())
                      : RankOutput.prefixed(context.out(), context.err()));
      if (output != null) {
        builder.outputFolder(output);
      }
      if (secretFile != null) {
        builder.secretFile(secretFile);
      }
      if (nodes > 1) {
        builder.node(nodeRank, nodes, rendezvous());
        checkSecret();
      } else if (rendezvous != null || secretFile != null) {
        throw new InvalidArgumentException(
            "--rendezvous and --secret-file are for several machines", "add --nodes, or omit them");
      }
      return builder.start();
    } catch (InvalidArgumentException e) {
      throw new ParameterException(spec.commandLine(), e.getMessage(), e);
    }
  }

  private Duration grace() {
    if (!(grace >= 0)) {
      throw new InvalidArgumentException("--grace is " + grace, "use 0 or more seconds");
    }
    return Duration.ofMillis(Math.round(grace * MILLIS));
  }

  private String rendezvous() {
    return rendezvous != null
        ? rendezvous
        : context.environment().getOrDefault(RankEnvironment.RENDEZVOUS, "");
  }

  private void checkSecret() {
    if (secretFile == null
        && !context.environment().containsKey(RankEnvironment.SECRET)
        && !context.environment().containsKey(RankEnvironment.SECRET_FILE)) {
      throw new InvalidArgumentException(
          "the ranks of several machines need a secret, without which anybody could join",
          "pass the same --secret-file on each: openssl rand -hex 32 makes one");
    }
  }
}
