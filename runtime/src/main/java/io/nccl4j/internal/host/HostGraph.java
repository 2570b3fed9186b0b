package io.nccl4j.internal.host;

import io.nccl4j.internal.schedule.CapturedGraph;
import io.nccl4j.internal.schedule.GraphEngine;
import io.nccl4j.internal.schedule.GraphNode;
import java.util.List;

/** Captured nodes, which hold nothing that must be released. */
record HostGraph(List<GraphNode<HostWork>> nodes) implements CapturedGraph<HostWork> {
  @Override
  public GraphEngine<HostWork> instantiate() {
    return HostExecutableGraph.of(nodes);
  }

  @Override
  public void close() {}
}
