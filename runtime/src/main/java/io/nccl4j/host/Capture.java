package io.nccl4j.host;

import io.nccl4j.InvalidUsageException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;

/**
 * A capture under way: the nodes so far, and for each stream in it the nodes that the next one
 * comes after. Used by one thread at a time, as its streams are.
 */
final class Capture {
  private final HostStream origin;
  private final List<GraphNode> nodes = new ArrayList<>();
  private final Map<HostStream, TreeSet<Integer>> frontiers = new HashMap<>();
  private int works;
  private boolean ended;

  Capture(HostStream origin) {
    this.origin = origin;
    frontiers.put(origin, new TreeSet<>());
  }

  boolean hasEnded() {
    return ended;
  }

  /** Numbers works in the order of their calls. */
  int nextOrder() {
    return works++;
  }

  void addPlan(HostStream stream, HostWork first) {
    List<HostWork> works = new ArrayList<>();
    for (HostWork work = first; work != null; ) {
      HostWork next = (HostWork) work.next;
      work.next = null;
      works.add(work);
      work = next;
    }
    add(stream, new GraphNode(List.copyOf(works), frontier(stream)));
  }

  void addTask(HostStream stream, StreamTask task) {
    add(stream, new GraphNode(task, frontier(stream)));
  }

  private void add(HostStream stream, GraphNode node) {
    TreeSet<Integer> frontier = frontiers.get(stream);
    frontier.clear();
    frontier.add(nodes.size());
    nodes.add(node);
  }

  /** The nodes after which the stream's next one comes. */
  int[] frontier(HostStream stream) {
    return frontiers.get(stream).stream().mapToInt(Integer::intValue).toArray();
  }

  /**
   * Makes the stream's next node come after these nodes, too; the stream joins if it is not in the
   * capture yet.
   */
  void join(HostStream stream, int[] after) {
    TreeSet<Integer> frontier = frontiers.computeIfAbsent(stream, ignored -> new TreeSet<>());
    for (int node : after) {
      frontier.add(node);
    }
  }

  /** Ends the capture for all its streams. */
  List<GraphNode> end(HostStream stream) {
    if (stream != origin) {
      throw new InvalidUsageException(
          "endCapture: this stream joined a capture that began on another stream",
          "end it where it began");
    }
    ended = true;
    frontiers.keySet().forEach(HostStream::leaveCapture);
    boolean[] reached = new boolean[nodes.size()];
    frontiers.get(origin).forEach(node -> reach(node, reached));
    for (boolean node : reached) {
      if (!node) {
        throw new InvalidUsageException(
            "endCapture: a stream that joined the capture was not joined back",
            "record an event on it after its last work, and wait for that event on the first"
                + " stream");
      }
    }
    return nodes;
  }

  /**
   * A stream is closed: with the one on which it began the whole capture is given up; another one
   * leaves it, and what it was not joined back with is missed at the end.
   */
  void drop(HostStream stream) {
    if (stream != origin) {
      frontiers.remove(stream);
      stream.leaveCapture();
      return;
    }
    ended = true;
    frontiers.keySet().forEach(HostStream::leaveCapture);
  }

  private void reach(int node, boolean[] reached) {
    if (!reached[node]) {
      reached[node] = true;
      for (int before : nodes.get(node).after) {
        reach(before, reached);
      }
    }
  }
}
