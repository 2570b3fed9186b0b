package io.nccl4j.cli;

import io.nccl4j.bench.SendRecvProgram;
import picocli.CommandLine.Command;

/** {@code nccl4j sendrecv}, nccl-tests' {@code sendrecv_perf}. */
@Command(
    name = "sendrecv",
    aliases = "sendrecv_perf",
    description = "Measures and verifies send and recv: each rank sends to the next, in a ring.",
    usageHelpWidth = 100,
    sortOptions = false)
final class SendRecvCommand extends BenchCommand {
  /** The command. */
  SendRecvCommand(Context context) {
    super(context, new SendRecvProgram());
  }
}
