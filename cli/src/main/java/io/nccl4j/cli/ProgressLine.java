package io.nccl4j.cli;

import io.nccl4j.bench.result.RunInfo;
import io.nccl4j.bench.result.RunListener;
import io.nccl4j.bench.result.RunResult;
import io.nccl4j.bench.result.SizeResult;
import java.io.PrintStream;

/**
 * A progress bar on a terminal, below the lines that another listener prints. It is drawn between
 * measurements only: nothing runs beside the ranks.
 */
final class ProgressLine implements RunListener, AutoCloseable {
  private final RunListener printer;
  private final String task;
  private final Bar bar;
  private long lines;
  private long printed;

  /** A bar for {@code task} on {@code terminal}, which stays the caller's. */
  ProgressLine(RunListener printer, String task, PrintStream terminal) {
    this.printer = printer;
    this.task = task;
    this.bar = new Bar(terminal);
  }

  @Override
  public void planned(long total) {
    lines = total;
    printer.planned(total);
  }

  @Override
  public void started(RunInfo info) {
    printer.started(info);
    bar.show(task, lines == 0 ? -1 : lines, " lines");
  }

  @Override
  public void measured(SizeResult result) {
    bar.erase();
    printer.measured(result);
    bar.moveTo(++printed, "");
  }

  @Override
  public void finished(RunResult result) {
    close();
    printer.finished(result);
  }

  /** Takes the bar off the terminal. */
  @Override
  public void close() {
    bar.close();
  }
}
