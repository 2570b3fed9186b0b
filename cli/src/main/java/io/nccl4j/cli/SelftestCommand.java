package io.nccl4j.cli;

import picocli.CommandLine.Command;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.ParameterException;
import picocli.CommandLine.Spec;

/** {@code nccl4j selftest}: tests that show on the user's machine what users ask about. */
@Command(
    name = "selftest",
    description = "Tests nccl4j on this machine.",
    versionProvider = Version.class,
    synopsisSubcommandLabel = "COMMAND",
    usageHelpWidth = 100)
final class SelftestCommand implements Runnable {
  @Spec private CommandSpec spec;

  @Override
  public void run() {
    throw new ParameterException(spec.commandLine(), "the name of a test is missing");
  }
}
