package io.nccl4j.internal.schedule;

import io.nccl4j.Device;
import io.nccl4j.ExecutableGraph;
import io.nccl4j.Graph;
import io.nccl4j.InvalidUsageException;
import java.util.List;

/**
 * A captured graph of any backend. What the backend keeps of it is a {@link CapturedGraph}.
 *
 * @param <W> the backend's work
 */
public final class ScheduledGraph<W extends Work> implements Graph {
  private final Device device;
  private final CapturedGraph<W> captured;
  private boolean closed;

  /**
   * A graph.
   *
   * @param device where the capture began; other devices' streams may have joined
   */
  ScheduledGraph(Device device, CapturedGraph<W> captured) {
    this.device = device;
    this.captured = captured;
  }

  Device device() {
    return device;
  }

  List<GraphNode<W>> nodes() {
    return captured.nodes();
  }

  /** What the backend keeps of it; it is open. */
  CapturedGraph<W> captured() {
    if (closed) {
      throw new InvalidUsageException("the graph is closed", "capture a new one");
    }
    return captured;
  }

  @Override
  public int nodeCount() {
    return captured.nodes().size();
  }

  @Override
  public ExecutableGraph instantiate() {
    return new ScheduledExecutableGraph<>(this);
  }

  @Override
  public void close() {
    if (!closed) {
      closed = true;
      captured.close();
    }
  }
}
