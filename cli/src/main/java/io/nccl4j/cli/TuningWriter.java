package io.nccl4j.cli;

import io.nccl4j.Backend;
import io.nccl4j.BackendInfo.TuningInfo;
import io.nccl4j.bench.machine.ByteSize;
import java.io.PrintStream;
import java.util.List;

/** Prints the table of {@code info --tuning}. */
final class TuningWriter {
  private static final String FORMAT = "%-15s %9s %9s  %-18s %-5s  %-6s %6s  %s%n";

  private TuningWriter() {}

  /** Prints a line for each row, and what the columns are. */
  static void print(PrintStream out, Backend backend, int nranks, List<TuningInfo> rows) {
    out.printf(
        "# %s, %d ranks of one machine. Sizes: what a rank sends, all its blocks%n",
        backend.label(), nranks);
    out.println("# together; of v-forms the largest block.");
    out.printf(FORMAT, "# operation", "from", "to", "memory", "algo", "proto", "chunk", "why");
    for (TuningInfo row : rows) {
      out.printf(
          FORMAT,
          row.operation(),
          ByteSize.option(row.leastBytes()),
          row.mostBytes() == Long.MAX_VALUE ? "-" : ByteSize.option(row.mostBytes()),
          row.memory(),
          row.algorithm(),
          row.protocol(),
          ByteSize.option(row.chunkBytes()),
          row.reason());
    }
  }
}
