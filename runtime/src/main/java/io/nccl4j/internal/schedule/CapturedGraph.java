package io.nccl4j.internal.schedule;

/**
 * What a backend keeps of a captured graph.
 *
 * @param <W> the backend's work
 */
public interface CapturedGraph<W extends Work> {
  /** Makes it executable, with progress of its own. */
  GraphEngine<W> instantiate();

  /** Releases what it holds, once. */
  void close();
}
