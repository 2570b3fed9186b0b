package io.nccl4j.cli;

import io.nccl4j.bench.selftest.Soak;
import java.time.Duration;
import java.util.Locale;

/** How far a soak is: a progress bar on a terminal, else a line now and then. */
final class SoakProgress implements Soak.Listener, AutoCloseable {
  private final Context context;
  private final Bar bar;

  SoakProgress(Context context) {
    this.context = context;
    this.bar = new Bar(context.err());
  }

  @Override
  public void progress(Soak.Result soFar, Duration of) {
    if (context.hasTerminal()) {
      bar.show("soak", of.toSeconds(), " s");
      bar.moveTo((long) soFar.seconds(), soFar.episodes() + " episodes");
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

  @Override
  public void problem(String text) {
    bar.erase();
    context.err().println("nccl4j: soak: " + text);
  }

  /** Takes the bar off the terminal. */
  @Override
  public void close() {
    bar.close();
  }
}
