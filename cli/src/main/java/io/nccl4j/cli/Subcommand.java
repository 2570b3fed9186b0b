package io.nccl4j.cli;

import java.util.concurrent.Callable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Spec;

/** A command that returns its exit code, and the layout of its help. */
@Command(versionProvider = Version.class, usageHelpWidth = 100, sortOptions = false)
abstract class Subcommand implements Callable<Integer> {
  final Context context;

  @Spec CommandSpec spec;

  /** A command that runs in {@code context}. */
  Subcommand(Context context) {
    this.context = context;
  }
}
