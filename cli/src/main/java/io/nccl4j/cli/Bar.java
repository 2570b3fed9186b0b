package io.nccl4j.cli;

import java.io.PrintStream;
import java.time.Duration;
import me.tongfei.progressbar.DelegatingProgressBarConsumer;
import me.tongfei.progressbar.ProgressBar;
import me.tongfei.progressbar.ProgressBarBuilder;
import me.tongfei.progressbar.ProgressBarStyle;
import org.jspecify.annotations.Nullable;

/** A progress bar in the last line of a terminal, drawn when it moves and at no other time. */
final class Bar implements AutoCloseable {
  private static final int WIDTH = 78;
  private static final String ERASE = "\r\u001b[K";

  private final PrintStream terminal;
  private @Nullable ProgressBar bar;

  /** A bar on {@code terminal}, which stays the caller's; it is not there before {@link #show}. */
  Bar(PrintStream terminal) {
    this.terminal = terminal;
  }

  /**
   * Draws the bar for the first time.
   *
   * @param most where it ends; −1 if nobody knows
   */
  void show(String task, long most, String unit) {
    if (bar == null) {
      bar =
          new ProgressBarBuilder()
              .setTaskName(task)
              .setInitialMax(most)
              .setUnit(unit, 1)
              .setStyle(ProgressBarStyle.ASCII)
              .setUpdateIntervalMillis((int) Duration.ofDays(1).toMillis())
              .setConsumer(new DelegatingProgressBarConsumer(this::draw, WIDTH))
              .build();
      bar.refresh();
    }
  }

  /** Moves it to where it is now; nothing if it is not shown. */
  void moveTo(long now, String message) {
    if (bar != null) {
      bar.stepTo(now);
      bar.setExtraMessage(message);
      bar.refresh();
    }
  }

  /** Makes room for a line of text; nothing if it is not shown. */
  void erase() {
    if (bar != null) {
      draw("");
    }
  }

  private synchronized void draw(String text) {
    terminal.print(ERASE + text);
    terminal.flush();
  }

  /** Takes it off the terminal. */
  @Override
  public void close() {
    if (bar != null) {
      bar.close();
      bar = null;
      draw("");
    }
  }
}
