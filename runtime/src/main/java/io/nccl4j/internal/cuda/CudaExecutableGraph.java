package io.nccl4j.internal.cuda;

import io.nccl4j.AbortedException;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.ExecutableGraph;
import io.nccl4j.Graph;
import io.nccl4j.InterruptedWaitException;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.Stream;
import io.nccl4j.bindings.cuda.Cuda;
import io.nccl4j.internal.cuda.driver.Driver;
import io.nccl4j.internal.cuda.driver.Gpu;
import io.nccl4j.internal.cuda.nccl.CudaHolders;
import io.nccl4j.internal.schedule.GroupScope;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Comparator;
import java.util.List;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * An instantiated CUDA graph. It owns it until it is closed, or until a communicator in it is,
 * since NCCL destroys no communicator that a graph holds.
 */
@SuppressWarnings("try") // a scope is entered, not used
final class CudaExecutableGraph implements ExecutableGraph, CudaHolders.Holder {
  private final CudaDevice device;
  private List<CudaNode> nodes;
  private List<CudaCommunicator> communicators;
  private List<CudaNode.Call> operations;
  private MemorySegment handle;
  private long launched;
  private volatile long passed;
  private volatile @Nullable CudaStream lastStream;
  private volatile boolean closed;
  private volatile boolean lost;

  private CudaExecutableGraph(CudaDevice device, MemorySegment handle, List<CudaNode> nodes) {
    this.device = device;
    this.handle = handle;
    this.nodes = nodes;
    this.communicators = communicatorsOf(nodes);
    this.operations = inOrder(nodes);
  }

  static CudaExecutableGraph of(CudaGraph graph) {
    CudaExecutableGraph made =
        new CudaExecutableGraph(
            graph.device(), instantiate(graph.device(), graph.handle()), graph.nodes());
    made.communicators.forEach(communicator -> communicator.holders().add(made));
    return made;
  }

  private static MemorySegment instantiate(CudaDevice device, MemorySegment graph) {
    try (Gpu.Scope ignored = device.gpu().enter();
        Arena arena = Arena.ofConfined()) {
      MemorySegment out = arena.allocate(ValueLayout.ADDRESS);
      Driver.check(Cuda.cuGraphInstantiateWithFlags(out, graph, 0), "cuGraphInstantiate");
      return out.get(ValueLayout.ADDRESS, 0);
    }
  }

  static List<CudaCommunicator> communicatorsOf(List<CudaNode> nodes) {
    return nodes.stream()
        .flatMap(node -> node.operations().stream())
        .map(CudaNode.Call::communicator)
        .distinct()
        .toList();
  }

  /** As they were called, whatever their streams. */
  private static List<CudaNode.Call> inOrder(List<CudaNode> nodes) {
    return nodes.stream()
        .flatMap(node -> node.operations().stream())
        .sorted(Comparator.comparingInt(CudaNode.Call::order))
        .toList();
  }

  @Override
  public synchronized void launch(Stream stream) {
    if (!(stream instanceof CudaStream own)) {
      throw new InvalidArgumentException(
          "launch: the stream is " + (stream == null ? "null" : "not of a cuda device"),
          "pass a cuda stream");
    }
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
    if (lost) {
      communicators.forEach(CudaCommunicator::requireReady);
    }
    // By number, not by iterator: a launch allocates nothing.
    for (int i = 0; i < nodes.size(); i++) {
      if (nodes.get(i).usesClosed()) {
        throw new InvalidUsageException(
            "launch: a buffer in the graph is closed, or the module of a kernel",
            "keep buffers and modules open until the executable graph is closed");
      }
    }
    own.awaitRoom();
    int entered = 0;
    try {
      for (; entered < communicators.size(); entered++) {
        communicators.get(entered).enterForLaunch();
      }
      Driver.check(own.launch(handle), "cuGraphLaunch");
      for (int i = 0; i < communicators.size(); i++) {
        communicators.get(i).holders().graphStarted();
      }
      for (int i = 0; i < operations.size(); i++) {
        operations.get(i).note();
      }
      launched++;
      lastStream = own;
      own.queue().add(this);
    } finally {
      for (int i = 0; i < entered; i++) {
        communicators.get(i).leave();
      }
    }
  }

  // ---- for the stream

  /** A launch has run; returns the failure of a communicator in it, or null. */
  @SuppressWarnings("NonAtomicVolatileUpdate") // under the stream's guard
  @Nullable NcclException passed() {
    NcclException failure = null;
    for (int i = 0; i < communicators.size(); i++) {
      CudaCommunicator communicator = communicators.get(i);
      communicator.holders().graphEnded();
      failure = failure == null ? communicator.health().outcome() : failure;
    }
    passed = passed + 1;
    return failure;
  }

  List<CudaCommunicator> communicators() {
    return communicators;
  }

  void checkDeadline(long waitedNanos) {
    communicators.forEach(communicator -> communicator.deadlines().checkGraph(waitedNanos));
  }

  /** What it waits for, as far as can be seen here. */
  String describe() {
    for (CudaCommunicator communicator : communicators) {
      String waits = communicator.deadlines().explainGraph();
      if (!waits.isEmpty()) {
        return "a graph, whose " + waits;
      }
    }
    return "a graph";
  }

  boolean uses(Object buffer) {
    return nodes.stream().anyMatch(node -> node.uses(buffer));
  }

  /** Learns whether the last launch has run. */
  @Override
  public void poll() {
    CudaStream stream = lastStream;
    if (stream != null && passed != launched && !stream.isCapturing() && !stream.isClosed()) {
      stream.queue().poll();
    }
  }

  // ---- changing

  @Override
  public synchronized void update(Graph graph) {
    if (!(graph instanceof CudaGraph other)) {
      throw new InvalidArgumentException(
          "update: the graph is " + (graph == null ? "null" : "not of a cuda device"),
          "pass a graph of this backend");
    }
    requireOpen();
    if (lost) {
      communicators.forEach(CudaCommunicator::requireReady);
    }
    List<CudaNode> captured = other.nodes();
    if (captured.size() != nodes.size()) {
      throw new InvalidArgumentException(
          "update: the new graph has " + captured.size() + " nodes, this one " + nodes.size(),
          "capture the same operations, or instantiate the new graph");
    }
    for (int i = 0; i < captured.size(); i++) {
      String difference = captured.get(i).differenceFrom(nodes.get(i));
      if (difference != null) {
        throw new InvalidArgumentException(
            "update: node " + i + " differs: " + difference,
            "capture the same operations, or instantiate the new graph");
      }
    }
    boolean ignored = awaitIdle(Long.MAX_VALUE);
    // Not CUDA's update in place: the new plans of NCCL belong to the new graph.
    MemorySegment replaced = handle;
    handle = instantiate(other.device(), other.handle());
    nodes = captured;
    operations = inOrder(captured);
    Driver.check(Cuda.cuGraphExecDestroy(replaced), "cuGraphExecDestroy");
  }

  private boolean awaitIdle(long timeoutNanos) {
    long start = System.nanoTime();
    CudaStream stream = lastStream;
    while (stream != null && passed != launched) {
      if (!stream.waits().awaitHead(timeoutNanos - (System.nanoTime() - start))) {
        return false;
      }
    }
    return true;
  }

  /** Destroys the graph; launches that are under way end all the same. */
  @Override
  public synchronized void communicatorEnds() {
    destroy();
  }

  private void destroy() {
    if (!lost) {
      lost = true;
      Driver.check(Cuda.cuGraphExecDestroy(handle), "cuGraphExecDestroy");
    }
  }

  @Override
  public void close() {
    if (closed) {
      return;
    }
    try {
      long timeout =
          communicators.stream()
              .map(communicator -> communicator.config().closeTimeout())
              .max(Comparator.naturalOrder())
              .orElseGet(() -> CommunicatorConfig.defaults().closeTimeout())
              .toNanos();
      if (!awaitIdle(timeout)) {
        AbortedException reason =
            new AbortedException(
                describe() + ": unfinished when it was closed",
                "synchronize before closing; close-timeout sets how long close waits");
        communicators.forEach(communicator -> communicator.health().fail(reason));
        // Launches that wait for another stream end all the same.
        boolean ignored = awaitIdle(timeout);
      }
    } catch (InterruptedWaitException e) {
      giveUp(Objects.requireNonNull(lastStream));
    }
    synchronized (this) {
      closed = true;
      destroy();
    }
    communicators.forEach(communicator -> communicator.holders().remove(this));
  }

  /** NCCL must be through with the graph: what an interrupted thread would wait for is aborted. */
  private void giveUp(CudaStream stream) {
    AbortedException reason =
        new AbortedException(
            "a graph was unfinished when it was closed by an interrupted thread",
            "synchronize before closing");
    communicators.forEach(communicator -> communicator.health().fail(reason));
    while (passed != launched) {
      stream.waits().awaitHeadUninterruptibly();
    }
  }

  private void requireOpen() {
    if (closed) {
      throw new InvalidUsageException(
          "the executable graph is closed", "instantiate the graph again");
    }
  }
}
