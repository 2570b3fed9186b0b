package io.nccl4j.internal.host;

import io.nccl4j.CommunicatorConfig;
import io.nccl4j.ExecutableGraph;
import io.nccl4j.Graph;
import io.nccl4j.InterruptedWaitException;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.Stream;
import io.nccl4j.internal.host.memory.BufferUser;
import io.nccl4j.internal.host.memory.HostBuffer;
import io.nccl4j.internal.host.memory.ProcessMemory;
import io.nccl4j.internal.memory.Uses;
import io.nccl4j.internal.schedule.GroupScope;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Comparator;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Set;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;
import org.jspecify.annotations.Nullable;

/**
 * Nodes with works of their own. The launching thread reserves numbers and queues an entry; whoever
 * drives that entry carries out all nodes whose predecessors are done, so that branches of a graph
 * run side by side as streams do.
 */
final class HostExecutableGraph implements ExecutableGraph, BufferUser {
  private static final Logger LOG = LogManager.getLogger(HostExecutableGraph.class);

  private final HostDevice device;
  private GraphNode[] nodes;
  private GraphNumbers[] numbers;

  /** All buffers in it, each once. */
  private Object[] owners;

  private final boolean[] done;
  private @Nullable Lookahead lookahead;
  private int first;
  private long launched;
  private volatile long finished;
  private @Nullable HostStream lastStream;
  private long lastPosition;
  private volatile boolean closed;

  private HostExecutableGraph(HostDevice device, List<GraphNode> captured) {
    this.device = device;
    nodes = captured.stream().map(GraphNode::copy).toArray(GraphNode[]::new);
    numbers = numbersOf(nodes);
    owners = ownersOf(nodes);
    done = new boolean[nodes.length];
    lookahead = isChain(nodes) ? new Lookahead(nodes) : null;
  }

  static HostExecutableGraph of(HostDevice device, List<GraphNode> captured) {
    HostExecutableGraph graph = new HostExecutableGraph(device, captured);
    HostProcess.self().add(graph);
    return graph;
  }

  private static GraphNumbers[] numbersOf(GraphNode[] nodes) {
    List<HostWork> works = new ArrayList<>();
    for (GraphNode node : nodes) {
      works.addAll(List.of(node.works));
    }
    return works.stream()
        .map(work -> work.communicator)
        .distinct()
        .map(communicator -> new GraphNumbers(communicator, works))
        .toArray(GraphNumbers[]::new);
  }

  private static Object[] ownersOf(GraphNode[] nodes) {
    Set<Object> owners = Collections.newSetFromMap(new IdentityHashMap<>());
    for (GraphNode node : nodes) {
      owners.addAll(node.owners());
    }
    return owners.toArray();
  }

  private static boolean isChain(GraphNode[] nodes) {
    for (int i = 1; i < nodes.length; i++) {
      if (nodes[i].after.length != 1 || nodes[i].after[0] != i - 1) {
        return false;
      }
    }
    return true;
  }

  @Override
  public void launch(Stream stream) {
    if (!(stream instanceof HostStream own)) {
      throw new InvalidArgumentException(
          "launch: the stream is " + (stream == null ? "null" : "not of a host device"),
          "pass a host stream");
    }
    requireOpen();
    if (own.device() != device) {
      throw new InvalidArgumentException(
          "launch: the stream is on host device "
              + own.device().ordinal()
              + ", the graph was captured on host device "
              + device.ordinal(),
          "launch it on a stream of the device where the capture began");
    }
    if (own.isCapturing()) {
      throw new InvalidUsageException(
          "launch: the stream is being captured", "graphs cannot be captured in graphs");
    }
    if (GroupScope.isOpen()) {
      throw new InvalidUsageException(
          "launch: a group is open on this thread, and a graph cannot wait for its launch",
          "launch or close the group first");
    }
    for (Object owner : owners) {
      if (GraphNode.isClosed(owner)) {
        throw new InvalidUsageException(
            "launch: a buffer in the graph is closed",
            "keep buffers open until the executable graph is closed");
      }
      if (owner instanceof HostBuffer buffer) {
        ProcessMemory.self()
            .quarantine()
            .requireQuiet(buffer.address(), buffer.byteSize(), "launch");
      }
    }
    own.awaitRoom();
    int entered = 0;
    try {
      for (GraphNumbers part : numbers) {
        part.communicator().enterForLaunch();
        entered++;
      }
      queue(own);
    } finally {
      for (int i = 0; i < entered; i++) {
        numbers[i].communicator().leave();
      }
    }
  }

  /** Cannot fail. */
  private void queue(HostStream stream) {
    StreamTask task = stream.graphTask(this, ++launched, size());
    int at = 0;
    for (GraphNumbers part : numbers) {
      at = part.reserve(task.bases, at);
      part.communicator().graphStarted();
    }
    lastStream = stream;
    lastPosition = stream.release();
  }

  private int size() {
    int size = 0;
    for (GraphNumbers part : numbers) {
      size += part.size();
    }
    return size;
  }

  // ---- driving, by the owner of the stream

  /**
   * Takes steps of one launch.
   *
   * @param patience how often a collective that nothing runs beside looks for its peers before it
   *     is said to be waiting
   */
  int step(HostQueue stream, StreamTask task, int patience) {
    if (!task.begun) {
      if (finished != task.generation - 1) {
        return Step.DEPENDS;
      }
      begin(task);
    }
    Lookahead ahead = lookahead;
    int result = ahead == null ? stepBranches(stream) : stepChain(stream, ahead, patience);
    if (first < nodes.length) {
      return result;
    }
    for (GraphNumbers part : numbers) {
      part.communicator().graphEnded();
    }
    finished = task.generation;
    if (closed) {
      forget();
    }
    return Step.DONE;
  }

  private int stepBranches(HostQueue stream) {
    int result = Step.BLOCKED;
    for (int i = first; i < nodes.length; i++) {
      if (!done[i] && isReady(i)) {
        int one = step(stream, nodes[i], 0);
        if (one == Step.DONE) {
          done[i] = true;
          result = Step.MOVED;
        } else if (result != Step.MOVED && one != Step.BLOCKED) {
          result = one;
        }
      }
      if (done[i] && i == first) {
        first++;
      }
    }
    return result;
  }

  private int stepChain(HostQueue stream, Lookahead ahead, int patience) {
    int before = first;
    while (first < nodes.length) {
      ahead.advance(stream, first);
      HostWork small = ahead.work(first);
      int one = small == null ? step(stream, nodes[first], patience) : stream.step(small, patience);
      if (one != Step.DONE) {
        return first == before ? one : Step.MOVED;
      }
      done[first++] = true;
    }
    return Step.DONE;
  }

  private void begin(StreamTask task) {
    task.begun = true;
    first = 0;
    Arrays.fill(done, false);
    if (lookahead != null) {
      lookahead.begin();
    }
    int at = 0;
    for (GraphNumbers part : numbers) {
      at = part.assume(task.bases, at);
    }
  }

  private boolean isReady(int i) {
    for (int before : nodes[i].after) {
      if (!done[before]) {
        return false;
      }
    }
    return true;
  }

  private static int step(HostQueue stream, GraphNode node, int patience) {
    if (node.kind == StreamTask.WORKS) {
      int result = Step.DONE;
      int polls = node.works.length == 1 ? patience : 0;
      for (HostWork work : node.works) {
        if (!work.finished) {
          int one = stream.step(work, polls);
          work.finished = one == Step.DONE;
          if (one != Step.DONE && (result == Step.DONE || one == Step.MOVED)) {
            result = one;
          }
        }
      }
      return result;
    }
    if (stream.error() == null) {
      try {
        node.task.move();
      } catch (IllegalStateException e) {
        // The launch ends all the same: later ones wait for it.
        stream.memoryWasClosed(e);
      }
    }
    return Step.DONE;
  }

  /** A work that was begun and is not complete, for messages; null if there is none. */
  @Nullable HostWork firstPending() {
    HostWork[] found = new HostWork[1];
    forEachPending((work, now) -> found[0] = found[0] == null ? work : found[0], 0);
    return found[0];
  }

  /** Calls {@code action} for every work that was begun and is not complete. */
  void forEachPending(HostQueue.PendingAction action, long now) {
    for (int i = first; i < nodes.length; i++) {
      if (!done[i] && isReady(i)) {
        for (HostWork work : nodes[i].works) {
          if (!work.finished) {
            action.apply(work, now);
          }
        }
      }
    }
  }

  // ---- changing

  @Override
  public void update(Graph graph) {
    if (!(graph instanceof HostGraph other)) {
      throw new InvalidArgumentException(
          "update: the graph is " + (graph == null ? "null" : "not of a host device"),
          "pass a graph of this backend");
    }
    requireOpen();
    List<GraphNode> captured = other.nodes();
    if (captured.size() != nodes.length) {
      throw new InvalidArgumentException(
          "update: the new graph has " + captured.size() + " nodes, this one " + nodes.length,
          "capture the same operations, or instantiate the new graph");
    }
    for (int i = 0; i < nodes.length; i++) {
      String difference = captured.get(i).differenceFrom(nodes[i]);
      if (difference != null) {
        throw new InvalidArgumentException(
            "update: node " + i + " differs: " + difference,
            "capture the same operations, or instantiate the new graph");
      }
    }
    awaitIdle();
    nodes = captured.stream().map(GraphNode::copy).toArray(GraphNode[]::new);
    numbers = numbersOf(nodes);
    owners = ownersOf(nodes);
    lookahead = lookahead == null ? null : new Lookahead(nodes);
  }

  private void awaitIdle() {
    HostStream stream = lastStream;
    if (stream != null && finished != launched) {
      Progress.drive(stream, lastPosition, Long.MAX_VALUE);
    }
  }

  /** The launches under way. */
  @Override
  public void addUses(Object root, Uses uses) {
    long last = launched;
    if (finished == last) {
      return;
    }
    for (Object owner : owners) {
      if (GraphNode.isPart(owner, root)) {
        uses.add(() -> finished >= last);
        return;
      }
    }
  }

  /** Whether its last launch is under way in a stream. */
  boolean isQueuedIn(HostStream stream) {
    return finished != launched && lastStream == stream;
  }

  /** The longest of its communicators; a graph of copies and fills has none. */
  Duration closeTimeout(Duration otherwise) {
    return Arrays.stream(numbers)
        .map(part -> part.communicator().config().closeTimeout())
        .max(Comparator.naturalOrder())
        .orElse(otherwise);
  }

  /** Fails its communicators, so that launches under way end. */
  void giveUp(String problem) {
    for (GraphNumbers part : numbers) {
      part.communicator().closeEarly(problem);
    }
  }

  @Override
  public void close() {
    if (closed) {
      return;
    }
    HostStream stream = lastStream;
    try {
      if (stream != null && finished != launched) {
        long timeout = closeTimeout(CommunicatorConfig.defaults().closeTimeout()).toNanos();
        if (!Progress.drive(stream, lastPosition, timeout)) {
          giveUp("a graph was unfinished when it was closed: " + stream.describeHead());
          boolean ignored = Progress.drive(stream, lastPosition, timeout);
        }
      }
    } catch (InterruptedWaitException e) {
      LOG.debug("the launches under way go on, and use their buffers until then", e);
    }
    closed = true;
    forget();
  }

  /** Lets go of the buffers, unless launches are under way: the last one does. */
  private void forget() {
    if (finished == launched) {
      HostProcess.self().remove(this);
    }
  }

  private void requireOpen() {
    if (closed) {
      throw new InvalidUsageException(
          "the executable graph is closed", "instantiate the graph again");
    }
  }
}
