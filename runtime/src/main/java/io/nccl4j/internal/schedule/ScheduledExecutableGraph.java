package io.nccl4j.internal.schedule;

import io.nccl4j.Device;
import io.nccl4j.ExecutableGraph;
import io.nccl4j.Graph;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.Stream;
import io.nccl4j.internal.observe.Recorder;
import io.nccl4j.internal.spi.Resource;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * An executable graph of any backend: when it may be launched, and by which graph it may be
 * replaced. The backend's {@link GraphEngine} runs it. A launch allocates nothing.
 *
 * @param <W> the backend's work
 */
public final class ScheduledExecutableGraph<W extends Work> implements ExecutableGraph {
  /** All of one operation on one communicator. */
  private record Share(ScheduledCommunicator<?> communicator, int kind, long calls, long bytes) {}

  private final Device device;
  private final GraphEngine<W> engine;
  private List<GraphNode<W>> nodes;
  private ScheduledCommunicator<?>[] communicators;

  /** What a launch adds to the counters of the communicators. */
  private List<Share> shares;

  private int operations;

  /** All that it uses, each once. */
  private Resource[] resources;

  private volatile boolean closed;

  ScheduledExecutableGraph(ScheduledGraph<W> graph) {
    device = graph.device();
    engine = graph.captured().instantiate();
    nodes = graph.nodes();
    communicators = communicatorsOf(nodes);
    resources = resourcesOf(nodes);
    shares = sharesOf(nodes);
    operations = operationsOf(shares);
  }

  private static <W extends Work> List<Share> sharesOf(List<GraphNode<W>> nodes) {
    List<Share> shares = new ArrayList<>();
    for (GraphNode<W> node : nodes) {
      for (Work work : node.works()) {
        add(shares, (ScheduledCommunicator<?>) work.owner(), work);
      }
    }
    return shares;
  }

  private static void add(List<Share> shares, ScheduledCommunicator<?> owner, Work work) {
    int kind = work.operation.number();
    long bytes = work.bytes(owner.rank(), owner.nranks());
    for (int i = 0; i < shares.size(); i++) {
      Share share = shares.get(i);
      if (share.communicator == owner && share.kind == kind) {
        shares.set(i, new Share(owner, kind, share.calls + 1, share.bytes + bytes));
        return;
      }
    }
    shares.add(new Share(owner, kind, 1, bytes));
  }

  private static int operationsOf(List<Share> shares) {
    return (int) shares.stream().mapToLong(Share::calls).sum();
  }

  private static <W extends Work> ScheduledCommunicator<?>[] communicatorsOf(
      List<GraphNode<W>> nodes) {
    return nodes.stream()
        .flatMap(node -> node.works().stream())
        .map(work -> (ScheduledCommunicator<?>) work.owner())
        .distinct()
        .toArray(ScheduledCommunicator<?>[]::new);
  }

  private static <W extends Work> Resource[] resourcesOf(List<GraphNode<W>> nodes) {
    return nodes.stream()
        .flatMap(node -> node.resources().stream())
        .distinct()
        .toArray(Resource[]::new);
  }

  @Override
  public void launch(Stream stream) {
    ScheduledStream<W> own = own(stream);
    requireOpen();
    if (own.device() != device) {
      throw new InvalidArgumentException(
          "launch: the stream is on " + own.device() + ", the graph was captured on " + device,
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
    engine.requireUsable();
    for (Resource resource : resources) {
      if (resource.isClosed()) {
        throw new InvalidUsageException(
            "launch: a buffer in the graph is closed, or the module of a kernel",
            "keep buffers and modules open until the executable graph is closed");
      }
    }
    own.awaitRoom();
    int entered = 0;
    try {
      for (ScheduledCommunicator<?> communicator : communicators) {
        communicator.enterForLaunch();
        entered++;
      }
      engine.launch(own.engine());
      // By number, not by iterator: a launch allocates nothing.
      for (int i = 0; i < shares.size(); i++) {
        Share share = shares.get(i);
        share.communicator.tally().count(share.kind, share.calls, share.bytes);
      }
      Recorder.HERE.launched(operations, own.number());
    } finally {
      for (int i = 0; i < entered; i++) {
        communicators[i].leave();
      }
    }
  }

  @SuppressWarnings("unchecked") // streams of one backend have the same works
  private ScheduledStream<W> own(@Nullable Stream stream) {
    if (!(stream instanceof ScheduledStream<?> own) || own.device().backend() != device.backend()) {
      String label = device.backend().label();
      throw new InvalidArgumentException(
          "launch: the stream is " + (stream == null ? "null" : "not of a " + label + " device"),
          "pass a " + label + " stream");
    }
    return (ScheduledStream<W>) own;
  }

  @Override
  public void update(Graph graph) {
    ScheduledGraph<W> other = own(graph);
    requireOpen();
    engine.requireUsable();
    CapturedGraph<W> captured = other.captured();
    if (other.nodes().size() != nodes.size()) {
      throw new InvalidArgumentException(
          "update: the new graph has " + other.nodes().size() + " nodes, this one " + nodes.size(),
          "capture the same operations, or instantiate the new graph");
    }
    for (int i = 0; i < nodes.size(); i++) {
      String difference = other.nodes().get(i).differenceFrom(nodes.get(i));
      if (difference != null) {
        throw new InvalidArgumentException(
            "update: node " + i + " differs: " + difference,
            "capture the same operations, or instantiate the new graph");
      }
    }
    engine.replace(captured);
    nodes = other.nodes();
    resources = resourcesOf(nodes);
    shares = sharesOf(nodes);
    operations = operationsOf(shares);
  }

  @SuppressWarnings("unchecked") // graphs of one backend have the same works
  private ScheduledGraph<W> own(@Nullable Graph graph) {
    if (!(graph instanceof ScheduledGraph<?> own) || own.device().backend() != device.backend()) {
      throw new InvalidArgumentException(
          "update: the graph is "
              + (graph == null ? "null" : "not of a " + device.backend().label() + " device"),
          "pass a graph of this backend");
    }
    return (ScheduledGraph<W>) own;
  }

  private void requireOpen() {
    if (closed) {
      throw new InvalidUsageException(
          "the executable graph is closed", "instantiate the graph again");
    }
  }

  @Override
  public void close() {
    if (!closed) {
      engine.close();
      closed = true;
    }
  }
}
