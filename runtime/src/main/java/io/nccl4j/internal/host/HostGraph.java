package io.nccl4j.internal.host;

import io.nccl4j.ExecutableGraph;
import io.nccl4j.Graph;
import io.nccl4j.InvalidUsageException;
import java.util.List;

/** Captured nodes, in an order in which each comes after those it depends on. */
final class HostGraph implements Graph {
  private final HostDevice device;
  private final List<GraphNode> nodes;
  private boolean closed;

  /** Nodes that were captured on streams of a device, or of several, and began on this one. */
  HostGraph(HostDevice device, List<GraphNode> nodes) {
    this.device = device;
    this.nodes = List.copyOf(nodes);
  }

  List<GraphNode> nodes() {
    if (closed) {
      throw new InvalidUsageException("the graph is closed", "capture a new one");
    }
    return nodes;
  }

  @Override
  public int nodeCount() {
    return nodes.size();
  }

  @Override
  public ExecutableGraph instantiate() {
    return HostExecutableGraph.of(device, nodes());
  }

  @Override
  public void close() {
    closed = true;
  }
}
