package io.nccl4j.internal.schedule;

import io.nccl4j.Device;
import io.nccl4j.InvalidUsageException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;

/**
 * The nodes of a capture under way, and for each stream in it the nodes that the next one comes
 * after. Used by one thread at a time, as its streams are.
 *
 * @param <W> the backend's work
 */
public class Capture<W extends Work> {
  private static final Set<Capture<?>> UNDER_WAY = ConcurrentHashMap.newKeySet();

  private final StreamEngine<W> origin;
  private final List<GraphNode<W>> nodes = new ArrayList<>();
  private final Map<StreamEngine<W>, TreeSet<Integer>> frontiers = new HashMap<>();
  private final Thread thread = Thread.currentThread();
  private int works;
  private volatile boolean ended;

  /**
   * A capture that begins.
   *
   * @param origin the stream on which it begins and ends
   */
  public Capture(StreamEngine<W> origin) {
    this.origin = origin;
    frontiers.put(origin, new TreeSet<>());
    UNDER_WAY.add(this);
  }

  /** Whether this thread has begun a capture on a device, and has not ended it. */
  static boolean isUnderWay(Device device) {
    if (UNDER_WAY.isEmpty()) {
      return false;
    }
    for (Capture<?> capture : UNDER_WAY) {
      if (capture.thread == Thread.currentThread() && capture.origin.device() == device) {
        return true;
      }
    }
    return false;
  }

  /** Whether the capture is over. */
  public final boolean hasEnded() {
    return ended;
  }

  /** Numbers works in the order of their calls. */
  final int nextOrder() {
    return works++;
  }

  private TreeSet<Integer> of(StreamEngine<W> stream) {
    TreeSet<Integer> frontier = frontiers.get(stream);
    if (frontier == null) {
      throw new IllegalStateException("the stream is not in the capture");
    }
    return frontier;
  }

  /** The nodes after which the stream's next one comes. */
  final int[] frontier(StreamEngine<W> stream) {
    return of(stream).stream().mapToInt(Integer::intValue).toArray();
  }

  /** Adds a plan of linked works, which are the graph's from now on. */
  public final void addPlan(StreamEngine<W> stream, W first) {
    List<W> works = new ArrayList<>();
    for (Work work = first; work != null; ) {
      Work next = work.next;
      work.next = null;
      works.add(own(work));
      work = next;
    }
    add(stream, GraphNode.plan(List.copyOf(works), frontier(stream)));
  }

  @SuppressWarnings("unchecked") // a plan holds works of one backend
  private W own(Work work) {
    return (W) work;
  }

  /** Adds a copy, a fill or a kernel. */
  public final void addTransfer(StreamEngine<W> stream, GraphNode.Transfer transfer) {
    add(stream, GraphNode.transfer(transfer, frontier(stream)));
  }

  private void add(StreamEngine<W> stream, GraphNode<W> node) {
    TreeSet<Integer> frontier = of(stream);
    frontier.clear();
    frontier.add(nodes.size());
    nodes.add(node);
  }

  /**
   * Makes the stream's next node depend on these nodes, too; the stream joins the capture if it has
   * not yet.
   */
  final void join(StreamEngine<W> stream, int[] others) {
    TreeSet<Integer> frontier = frontiers.computeIfAbsent(stream, ignored -> new TreeSet<>());
    for (int node : others) {
      frontier.add(node);
    }
  }

  /** Whether it began on this stream, where it must end. */
  public final boolean beganOn(StreamEngine<W> stream) {
    return stream == origin;
  }

  /** A stream is closed: the capture goes on without it, or is over if it began there. */
  public final void drop(StreamEngine<W> stream) {
    if (beganOn(stream)) {
      end();
    } else {
      frontiers.remove(stream);
      stream.leaveCapture();
    }
  }

  /**
   * Throws unless the capture began on this stream.
   *
   * @throws InvalidUsageException that says so
   */
  public final void requireOrigin(StreamEngine<W> stream) {
    if (!beganOn(stream)) {
      throw new InvalidUsageException(
          "endCapture: this stream joined a capture that began on another stream",
          "end it where it began");
    }
  }

  /** Ends the capture for all its streams, whether or not its nodes can be had. */
  public final void end() {
    ended = true;
    UNDER_WAY.remove(this);
    frontiers.keySet().forEach(StreamEngine::leaveCapture);
  }

  /**
   * The nodes, each behind those that it comes after.
   *
   * @throws InvalidUsageException if a stream that joined was not joined back
   */
  public final List<GraphNode<W>> joinedNodes() {
    boolean[] reached = new boolean[nodes.size()];
    of(origin).forEach(node -> reach(node, reached));
    for (boolean node : reached) {
      if (!node) {
        throw new InvalidUsageException(
            "endCapture: a stream that joined the capture was not joined back",
            "record an event on it after its last work, and wait for that event on the first"
                + " stream");
      }
    }
    return List.copyOf(nodes);
  }

  private void reach(int node, boolean[] reached) {
    if (!reached[node]) {
      reached[node] = true;
      for (int before : nodes.get(node).after()) {
        reach(before, reached);
      }
    }
  }
}
