package io.nccl4j.internal.schedule;

import io.nccl4j.InvalidUsageException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.function.Function;

/**
 * The nodes of a capture under way, and for each stream in it the nodes that the next one comes
 * after. Used by one thread at a time, as its streams are.
 *
 * @param <S> the backend's streams
 * @param <N> the backend's nodes
 */
public final class CaptureNodes<S, N> {
  private final S origin;
  private final Function<N, int[]> after;
  private final List<N> nodes = new ArrayList<>();
  private final Map<S, TreeSet<Integer>> frontiers = new HashMap<>();
  private int works;
  private volatile boolean ended;

  /**
   * A capture that begins.
   *
   * @param origin the stream on which it begins and ends
   * @param after the nodes that a node comes after, by their places in the capture
   */
  public CaptureNodes(S origin, Function<N, int[]> after) {
    this.origin = origin;
    this.after = after;
    frontiers.put(origin, new TreeSet<>());
  }

  /** Whether the capture is over. */
  public boolean hasEnded() {
    return ended;
  }

  /** Numbers works in the order of their calls. */
  public int nextOrder() {
    return works++;
  }

  private TreeSet<Integer> of(S stream) {
    TreeSet<Integer> frontier = frontiers.get(stream);
    if (frontier == null) {
      throw new IllegalStateException("the stream is not in the capture");
    }
    return frontier;
  }

  /** The nodes after which the stream's next one comes. */
  public int[] frontier(S stream) {
    return of(stream).stream().mapToInt(Integer::intValue).toArray();
  }

  /** Adds a node that was made with the stream's {@link #frontier}. */
  public void add(S stream, N node) {
    TreeSet<Integer> frontier = of(stream);
    frontier.clear();
    frontier.add(nodes.size());
    nodes.add(node);
  }

  /**
   * Makes the stream's next node come after these nodes, too; the stream joins if it is not in the
   * capture yet.
   */
  public void join(S stream, int[] others) {
    TreeSet<Integer> frontier = frontiers.computeIfAbsent(stream, ignored -> new TreeSet<>());
    for (int node : others) {
      frontier.add(node);
    }
  }

  /** The streams in the capture. */
  public Set<S> streams() {
    return Set.copyOf(frontiers.keySet());
  }

  /**
   * A stream is closed: the capture goes on without it, or is over if it began there.
   *
   * @return whether it is over
   */
  public boolean drop(S stream) {
    if (stream == origin) {
      ended = true;
    } else {
      frontiers.remove(stream);
    }
    return ended;
  }

  /**
   * Throws unless the capture began on this stream.
   *
   * @throws InvalidUsageException that says so
   */
  public void requireOrigin(S stream) {
    if (stream != origin) {
      throw new InvalidUsageException(
          "endCapture: this stream joined a capture that began on another stream",
          "end it where it began");
    }
  }

  /** Ends the capture, whether or not its nodes can be had. */
  public void end() {
    ended = true;
  }

  /**
   * The nodes, each behind those that it comes after.
   *
   * @throws InvalidUsageException if a stream that joined was not joined back
   */
  public List<N> joinedNodes() {
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
      for (int before : after.apply(nodes.get(node))) {
        reach(before, reached);
      }
    }
  }
}
