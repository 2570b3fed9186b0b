package io.nccl4j.bench.result;

import java.util.List;

/** Hears of a run's progress, in this order, from one thread at a time. */
public interface RunListener {
  /**
   * There will be so many lines; before the run is started.
   *
   * @param lines how often {@link #measured} will be called; 0 if without end
   */
  default void planned(long lines) {}

  /** The ranks are connected. */
  void started(RunInfo info);

  /** One more line of the table. */
  void measured(SizeResult result);

  /** All sizes are done. */
  void finished(RunResult result);

  /** A listener that passes everything on to several. */
  static RunListener all(List<? extends RunListener> listeners) {
    List<RunListener> copy = List.copyOf(listeners);
    return new RunListener() {
      @Override
      public void planned(long lines) {
        copy.forEach(listener -> listener.planned(lines));
      }

      @Override
      public void started(RunInfo info) {
        copy.forEach(listener -> listener.started(info));
      }

      @Override
      public void measured(SizeResult result) {
        copy.forEach(listener -> listener.measured(result));
      }

      @Override
      public void finished(RunResult result) {
        copy.forEach(listener -> listener.finished(result));
      }
    };
  }
}
