package io.nccl4j.internal.schedule;

import io.nccl4j.Device;
import io.nccl4j.ExecutableGraph;
import io.nccl4j.Graph;
import io.nccl4j.InvalidUsageException;
import java.util.List;

/**
 * A captured graph of any backend: its steps, each behind those that it comes after.
 *
 * @param <W> the backend's work
 */
public final class ScheduledGraph<W extends Work> implements Graph {
  private final Device device;
  private final List<GraphNode<W>> nodes;
  private final CapturedGraph<W> captured;
  private boolean closed;

  /**
   * A graph.
   *
   * @param device where the capture began; other devices' streams may have joined
   */
  public ScheduledGraph(Device device, List<GraphNode<W>> nodes, CapturedGraph<W> captured) {
    this.device = device;
    this.nodes = nodes;
    this.captured = captured;
  }

  Device device() {
    return device;
  }

  List<GraphNode<W>> nodes() {
    return nodes;
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
    return nodes.size();
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
