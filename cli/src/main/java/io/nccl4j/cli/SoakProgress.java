package io.nccl4j.cli;

import io.nccl4j.bench.selftest.Soak;
import java.time.Duration;
import java.util.Locale;
import me.tongfei.progressbar.DelegatingProgressBarConsumer;
import me.tongfei.progressbar.ProgressBar;
import me.tongfei.progressbar.ProgressBarBuilder;
import me.tongfei.progressbar.ProgressBarStyle;
import org.jspecify.annotations.Nullable;

/** How far a soak is: a progress bar on a terminal, else a line now and then. */
final class SoakProgress implements Soak.Listener, AutoCloseable {
  private static final int WIDTH = 78;
  private static final String ERASE = "\r\u001b[K";

  private final Context context;
  private @Nullable ProgressBar bar;

  SoakProgress(Context context) {
    this.context = context;
  }

  @Override
  public void progress(Soak.Result soFar, Duration of) {
    if (context.hasTerminal()) {
      ProgressBar shown = bar == null ? bar(of) : bar;
      bar = shown;
      shown.stepTo((long) soFar.seconds());
      shown.setExtraMessage(soFar.episodes() + " episodes");
      shown.refresh();
      return;
    }
    context
        .err()
        .printf(
            Locale.ROOT,
            "nccl4j: soak, %d ranks, %d processes: %d episodes, %d operations, %d wrong,"
                + " %d problems, %.0f of %d s%n",
            soFar.settings().ranks(),
            soFar.settings().processes(),
            soFar.episodes(),
            soFar.operations(),
            soFar.wrong(),
            soFar.problems(),
            soFar.seconds(),
            of.toSeconds());
  }

  private ProgressBar bar(Duration of) {
    return new ProgressBarBuilder()
        .setTaskName("soak")
        .setInitialMax(of.toSeconds())
        .setUnit(" s", 1)
        .setStyle(ProgressBarStyle.ASCII)
        .setUpdateIntervalMillis((int) Duration.ofDays(1).toMillis())
        .setConsumer(new DelegatingProgressBarConsumer(this::draw, WIDTH))
        .build();
  }

  private synchronized void draw(String text) {
    context.err().print(ERASE + text);
    context.err().flush();
  }

  @Override
  public void problem(String text) {
    if (bar != null) {
      draw("");
    }
    context.err().println("nccl4j: soak: " + text);
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
