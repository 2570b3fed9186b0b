package io.nccl4j.cli;

import io.nccl4j.bench.AllReduceProgram;
import picocli.CommandLine.Command;

/** {@code nccl4j allreduce}, nccl-tests' {@code all_reduce_perf}. */
@Command(
    name = "allreduce",
    aliases = "all_reduce_perf",
    description = "Measures and verifies allReduce: every rank gets the reduction of all ranks'.",
    usageHelpWidth = 100,
    sortOptions = false)
final class AllReduceCommand extends BenchCommand {
  /** The command. */
  AllReduceCommand(Context context) {
    super(context, new AllReduceProgram());
  }
}
