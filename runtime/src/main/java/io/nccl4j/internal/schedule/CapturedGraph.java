package io.nccl4j.internal.schedule;

import java.util.List;

/**
 * What a backend keeps of a captured graph.
 *
 * @param <W> the backend's work
 */
public interface CapturedGraph<W extends Work> {
  /** Its steps, each behind those that it comes after. */
  List<GraphNode<W>> nodes();

  /** Makes it executable, with progress of its own. */
  GraphEngine<W> instantiate();

  /** Releases what it holds, once. */
  void close();
}
