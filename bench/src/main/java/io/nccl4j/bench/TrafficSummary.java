package io.nccl4j.bench;

import io.nccl4j.DataType;
import java.io.PrintStream;
import java.util.Locale;

/**
 * Prints what each rank moved, behind each line of the table of {@code alltoallv_perf}, as
 * comments.
 */
final class TrafficSummary implements RunListener {
  /** Set to 1 for a summary. */
  static final String VARIABLE = "NCCL_TESTS_ALLTOALLV_PRINT_SUMMARY";

  private final Traffic traffic;
  private final Program program;
  private final PrintStream out;
  private int nranks;

  /** Prints to {@code out}, which stays the caller's. */
  TrafficSummary(Traffic traffic, Program program, PrintStream out) {
    this.traffic = traffic;
    this.program = program;
    this.out = out;
  }

  @Override
  public void started(RunInfo info) {
    int group = info.ranks().getFirst().group();
    nranks = (int) info.ranks().stream().filter(rank -> rank.group() == group).count();
  }

  @Override
  public void measured(SizeResult result) {
    long total = result.count() * nranks * DataType.ofLabel(result.type()).byteSize();
    double seconds = result.outOfPlace().micros() / 1e6;
    line("#   %s, %d ranks, %.2f us", traffic.describe(), nranks, seconds * 1e6);
    for (int rank = 0; rank < nranks; rank++) {
      long sent = traffic.sentBefore(nranks, rank, nranks, total);
      long received = traffic.receivedBefore(nranks, rank, nranks, total);
      double algBw = Math.max(sent, received) / 1e9 / seconds;
      line(
          "#   rank %d sends %d B, receives %d B, algbw %.2f GB/s, busbw %.2f GB/s",
          rank, sent, received, algBw, nranks == 1 ? algBw : algBw * program.busFactor(nranks));
    }
  }

  private void line(String format, Object... values) {
    out.print(String.format(Locale.ROOT, format, values) + "\n");
  }

  @Override
  public void finished(RunResult result) {}
}
