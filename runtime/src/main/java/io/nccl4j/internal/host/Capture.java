package io.nccl4j.internal.host;

import io.nccl4j.internal.schedule.CaptureNodes;
import java.util.ArrayList;
import java.util.List;

/** A capture under way. Used by one thread at a time, as its streams are. */
final class Capture {
  private final CaptureNodes<HostStream, GraphNode> nodes;

  Capture(HostStream origin) {
    nodes = new CaptureNodes<>(origin, node -> node.after);
  }

  boolean hasEnded() {
    return nodes.hasEnded();
  }

  /** Numbers works in the order of their calls. */
  int nextOrder() {
    return nodes.nextOrder();
  }

  void addPlan(HostStream stream, HostWork first) {
    List<HostWork> works = new ArrayList<>();
    for (HostWork work = first; work != null; ) {
      HostWork next = (HostWork) work.next;
      work.next = null;
      works.add(work);
      work = next;
    }
    nodes.add(stream, new GraphNode(works.toArray(HostWork[]::new), frontier(stream)));
  }

  void addTask(HostStream stream, StreamTask task) {
    nodes.add(stream, new GraphNode(task, frontier(stream)));
  }

  /** The nodes after which the stream's next one comes. */
  int[] frontier(HostStream stream) {
    return nodes.frontier(stream);
  }

  /** Makes the stream's next node come after these nodes, too; the stream may join by that. */
  void join(HostStream stream, int[] after) {
    nodes.join(stream, after);
  }

  /** Ends the capture for all its streams. */
  List<GraphNode> end(HostStream stream) {
    nodes.requireOrigin(stream);
    leaveAll();
    return nodes.joinedNodes();
  }

  private void leaveAll() {
    nodes.end();
    nodes.streams().forEach(HostStream::leaveCapture);
  }

  /** A stream is closed: without the first one there is no capture. */
  void drop(HostStream stream) {
    if (nodes.drop(stream)) {
      leaveAll();
    } else {
      stream.leaveCapture();
    }
  }
}
