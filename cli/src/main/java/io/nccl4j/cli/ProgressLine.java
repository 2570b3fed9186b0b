package io.nccl4j.cli;

import io.nccl4j.bench.result.RunInfo;
import io.nccl4j.bench.result.RunListener;
import io.nccl4j.bench.result.RunResult;
import io.nccl4j.bench.result.SizeResult;
import java.io.PrintStream;
import java.time.Duration;
import me.tongfei.progressbar.DelegatingProgressBarConsumer;
import me.tongfei.progressbar.ProgressBar;
import me.tongfei.progressbar.ProgressBarBuilder;
import me.tongfei.progressbar.ProgressBarStyle;
import org.jspecify.annotations.Nullable;

/**
 * A progress bar on a terminal, below the lines that another listener prints. It is drawn between
 * measurements only: nothing runs beside the ranks.
 */
final class ProgressLine implements RunListener, AutoCloseable {
  private static final int WIDTH = 78;
  private static final String ERASE = "\r\u001b[K";

  private final RunListener printer;
  private final String task;
  private final PrintStream terminal;
  private long lines;
  private @Nullable ProgressBar bar;

  /** A bar for {@code task} on {@code terminal}, which stays the caller's. */
  ProgressLine(RunListener printer, String task, PrintStream terminal) {
    this.printer = printer;
    this.task = task;
    this.terminal = terminal;
  }

  @Override
  public void planned(long total) {
    lines = total;
    printer.planned(total);
  }

  @Override
  public void started(RunInfo info) {
    printer.started(info);
    bar =
        new ProgressBarBuilder()
            .setTaskName(task)
            .setInitialMax(lines == 0 ? -1 : lines)
            .setUnit(" lines", 1)
            .setStyle(ProgressBarStyle.ASCII)
            .setUpdateIntervalMillis((int) Duration.ofDays(1).toMillis())
            .setConsumer(new DelegatingProgressBarConsumer(this::draw, WIDTH))
            .build();
    bar.refresh();
  }

  private synchronized void draw(String text) {
    terminal.print(ERASE + text);
    terminal.flush();
  }

  @Override
  public void measured(SizeResult result) {
    draw("");
    printer.measured(result);
    if (bar != null) {
      bar.step();
      bar.refresh();
    }
  }

  @Override
  public void finished(RunResult result) {
    close();
    printer.finished(result);
  }

  /** Takes the bar off the terminal. */
  @Override
  public void close() {
    if (bar != null) {
      bar.close();
      bar = null;
      draw("");
    }
  }
}
