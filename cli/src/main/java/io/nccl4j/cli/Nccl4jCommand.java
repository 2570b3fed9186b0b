package io.nccl4j.cli;

import picocli.CommandLine.Command;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.ParameterException;
import picocli.CommandLine.ScopeType;
import picocli.CommandLine.Spec;

/** The command without a subcommand: it knows only help and version. */
@Command(
    name = "nccl4j",
    description = "Collective communication for the JVM: measures and verifies collectives.",
    versionProvider = Version.class,
    synopsisSubcommandLabel = "COMMAND",
    usageHelpWidth = 100,
    footer = {
      "",
      "Results go to standard output, everything else to standard error.",
      "Exit code: 0 success, 1 internal error, 2 bad option, 3 failure, 4 timeout, 7 wrong data."
    })
final class Nccl4jCommand implements Runnable {
  private static final int AFTER_OTHERS = 100;

  @Spec private CommandSpec spec;

  @SuppressWarnings("unused") // picocli looks at the annotation only
  @Option(
      names = {"-h", "--help"},
      order = AFTER_OTHERS,
      usageHelp = true,
      scope = ScopeType.INHERIT,
      description = "Show this help and exit.")
  private boolean help;

  @SuppressWarnings("unused") // as above
  @Option(
      names = "--version",
      order = AFTER_OTHERS + 1,
      versionHelp = true,
      scope = ScopeType.INHERIT,
      description = "Show the versions of nccl4j and Java and exit.")
  private boolean version;

  @Option(
      names = "--verbose",
      order = AFTER_OTHERS + 2,
      scope = ScopeType.INHERIT,
      description = "Show where a failure comes from.")
  private boolean verbose;

  /** Whether failures are shown with their stack trace. */
  boolean verbose() {
    return verbose;
  }

  @Override
  public void run() {
    throw new ParameterException(spec.commandLine(), "a command is missing");
  }
}
