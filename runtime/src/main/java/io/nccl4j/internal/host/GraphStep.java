package io.nccl4j.internal.host;

import io.nccl4j.internal.schedule.GraphNode;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * A step of an executable graph: a plan of works of its own, so that executable graphs of one
 * capture do not share progress, or a copy or fill, with the steps it comes after.
 */
final class GraphStep {
  final int[] after;
  final HostWork[] works;

  /** The copy or fill; null for a plan. */
  final @Nullable StreamTask task;

  private GraphStep(GraphNode<HostWork> node) {
    after = node.after();
    works = node.works().stream().map(HostWork::copy).toArray(HostWork[]::new);
    task = (StreamTask) node.transfer();
  }

  /** Its only work if that is a collective; else null. */
  @Nullable HostWork collective() {
    return works.length == 1 && works[0].isCollective() ? works[0] : null;
  }

  static GraphStep[] of(List<GraphNode<HostWork>> nodes) {
    return nodes.stream().map(GraphStep::new).toArray(GraphStep[]::new);
  }
}
