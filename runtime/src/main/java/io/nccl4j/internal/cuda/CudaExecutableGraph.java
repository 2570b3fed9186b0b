package io.nccl4j.internal.cuda;

import io.nccl4j.AbortedException;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.InterruptedWaitException;
import io.nccl4j.NcclException;
import io.nccl4j.bindings.cuda.Cuda;
import io.nccl4j.internal.cuda.driver.Driver;
import io.nccl4j.internal.cuda.driver.Gpu;
import io.nccl4j.internal.cuda.nccl.CudaHolders;
import io.nccl4j.internal.schedule.CapturedGraph;
import io.nccl4j.internal.schedule.GraphEngine;
import io.nccl4j.internal.schedule.GraphNode;
import io.nccl4j.internal.schedule.StreamEngine;
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
final class CudaExecutableGraph implements GraphEngine<CudaWork>, CudaHolders.Holder {
  private List<GraphNode<CudaWork>> nodes;
  private final List<CudaCommunicator> communicators;

  /** In the order of their calls, whatever their streams. */
  private List<CudaWork> works;

  private MemorySegment handle;
  private long launched;
  private volatile long passed;
  private volatile @Nullable CudaStream lastStream;
  private volatile boolean lost;

  private CudaExecutableGraph(MemorySegment handle, List<GraphNode<CudaWork>> nodes) {
    this.handle = handle;
    this.nodes = nodes;
    this.communicators = communicatorsOf(nodes);
    this.works = inOrder(nodes);
  }

  static CudaExecutableGraph of(CudaGraph graph) {
    CudaExecutableGraph made =
        new CudaExecutableGraph(instantiate(graph.device(), graph.handle()), graph.nodes());
    made.communicators.forEach(communicator -> communicator.holders().add(made));
    return made;
  }

  private static MemorySegment instantiate(CudaGpu device, MemorySegment graph) {
    try (Gpu.Scope ignored = device.gpu().enter();
        Arena arena = Arena.ofConfined()) {
      MemorySegment out = arena.allocate(ValueLayout.ADDRESS);
      Driver.check(Cuda.cuGraphInstantiateWithFlags(out, graph, 0), "cuGraphInstantiate");
      return out.get(ValueLayout.ADDRESS, 0);
    }
  }

  static List<CudaCommunicator> communicatorsOf(List<GraphNode<CudaWork>> nodes) {
    return nodes.stream()
        .flatMap(node -> node.works().stream())
        .map(CudaWork::owner)
        .distinct()
        .toList();
  }

  private static List<CudaWork> inOrder(List<GraphNode<CudaWork>> nodes) {
    return nodes.stream()
        .flatMap(node -> node.works().stream())
        .sorted(Comparator.comparingInt(work -> work.order))
        .toList();
  }

  @Override
  public void requireUsable() {
    if (lost) {
      communicators.forEach(CudaCommunicator::requireReady);
    }
  }

  @Override
  public synchronized void launch(StreamEngine<CudaWork> stream) {
    requireUsable();
    CudaStream own = (CudaStream) stream;
    Driver.check(own.launch(handle), "cuGraphLaunch");
    // By number, not by iterator: a launch allocates nothing.
    for (int i = 0; i < communicators.size(); i++) {
      communicators.get(i).holders().graphStarted();
    }
    for (int i = 0; i < works.size(); i++) {
      works.get(i).note();
    }
    launched++;
    lastStream = own;
    own.queue().add(this);
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
    return nodes.stream()
        .flatMap(node -> node.resources().stream())
        .anyMatch(resource -> resource.isPartOf(buffer));
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
  public synchronized void replace(CapturedGraph<CudaWork> captured) {
    CudaGraph other = (CudaGraph) captured;
    boolean ignored = awaitIdle(Long.MAX_VALUE);
    // Not CUDA's update in place: the new plans of NCCL belong to the new graph.
    MemorySegment replaced = handle;
    handle = instantiate(other.device(), other.handle());
    nodes = other.nodes();
    works = inOrder(nodes);
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
}
