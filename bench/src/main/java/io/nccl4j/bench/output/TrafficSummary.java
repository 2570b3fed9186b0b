package io.nccl4j.bench.output;

import io.nccl4j.DataType;
import io.nccl4j.bench.program.AllToAllVProgram;
import io.nccl4j.bench.program.Program;
import io.nccl4j.bench.program.Traffic;
import io.nccl4j.bench.result.RunInfo;
import io.nccl4j.bench.result.RunListener;
import io.nccl4j.bench.result.RunResult;
import io.nccl4j.bench.result.SizeResult;
import java.io.PrintStream;
import java.util.Locale;
import java.util.Optional;

/**
 * Prints what each rank moved, behind each line of the table of {@code alltoallv_perf}, as
 * comments.
 */
public final class TrafficSummary implements RunListener {
  private final Traffic traffic;
  private final Program program;
  private final PrintStream out;
  private int nranks;

  private TrafficSummary(Traffic traffic, Program program, PrintStream out) {
    this.traffic = traffic;
    this.program = program;
    this.out = out;
  }

  /** The summary that the program was asked for, printed to {@code out}, which stays open. */
  public static Optional<RunListener> of(Program program, PrintStream out) {
    return program instanceof AllToAllVProgram all && all.traffic().summary()
        ? Optional.of(new TrafficSummary(all.traffic(), program, out))
        : Optional.empty();
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
