package io.nccl4j.internal.cuda;

import io.nccl4j.AbortedException;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.InterruptedWaitException;
import io.nccl4j.NcclException;
import io.nccl4j.bindings.cuda.Cuda;
import io.nccl4j.internal.cuda.driver.Driver;
import io.nccl4j.internal.cuda.driver.Gpu;
import io.nccl4j.internal.cuda.nccl.CudaHolders;
import io.nccl4j.internal.cuda.nccl.CudaRank;
import io.nccl4j.internal.schedule.CapturedGraph;
import io.nccl4j.internal.schedule.GraphEngine;
import io.nccl4j.internal.schedule.GraphNode;
import io.nccl4j.internal.schedule.StreamEngine;
import io.nccl4j.internal.schedule.Wording;
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
final class CudaExecutableGraph
    implements GraphEngine<CudaWork>, LaunchedGraph, CudaHolders.Holder {
  private List<GraphNode<CudaWork>> nodes;
  private final List<CudaRank> ranks;

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
    this.ranks = ranksOf(nodes);
    this.works = inOrder(nodes);
  }

  static CudaExecutableGraph of(CudaGraph graph) {
    CudaExecutableGraph made =
        new CudaExecutableGraph(instantiate(graph.gpu(), graph.handle()), graph.nodes());
    made.ranks.forEach(rank -> rank.holders().add(made));
    return made;
  }

  private static MemorySegment instantiate(Gpu gpu, MemorySegment graph) {
    try (Gpu.Scope ignored = gpu.enter();
        Arena arena = Arena.ofConfined()) {
      MemorySegment out = arena.allocate(ValueLayout.ADDRESS);
      Driver.check(Cuda.cuGraphInstantiateWithFlags(out, graph, 0), "cuGraphInstantiate");
      return out.get(ValueLayout.ADDRESS, 0);
    }
  }

  static List<CudaRank> ranksOf(List<GraphNode<CudaWork>> nodes) {
    return nodes.stream()
        .flatMap(node -> node.works().stream())
        .map(work -> work.rank)
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
      ranks.forEach(CudaRank::requireReady);
    }
  }

  @Override
  public synchronized void launch(StreamEngine<CudaWork> stream) {
    requireUsable();
    CudaStream own = (CudaStream) stream;
    Driver.check(own.launch(handle), "cuGraphLaunch");
    // By number, not by iterator: a launch allocates nothing.
    for (int i = 0; i < ranks.size(); i++) {
      ranks.get(i).holders().graphStarted();
    }
    for (int i = 0; i < works.size(); i++) {
      works.get(i).note();
    }
    launched++;
    lastStream = own;
    own.queue().add(this);
  }

  // ---- for the stream

  @Override
  @SuppressWarnings("NonAtomicVolatileUpdate") // under the stream's guard
  public @Nullable NcclException passed() {
    NcclException failure = null;
    for (int i = 0; i < ranks.size(); i++) {
      CudaRank rank = ranks.get(i);
      rank.holders().graphEnded();
      failure = failure == null ? rank.health().outcome() : failure;
    }
    passed = passed + 1;
    return failure;
  }

  @Override
  public List<CudaRank> ranks() {
    return ranks;
  }

  @Override
  public void checkDeadline(long waitedNanos) {
    ranks.forEach(rank -> rank.deadlines().checkGraph(waitedNanos));
  }

  @Override
  public String describe() {
    for (CudaRank rank : ranks) {
      String waits = rank.deadlines().explainGraph();
      if (!waits.isEmpty()) {
        return "a graph, whose " + waits;
      }
    }
    return "a graph";
  }

  @Override
  public boolean uses(Object buffer) {
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
    handle = instantiate(other.gpu(), other.handle());
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
          ranks.stream()
              .map(rank -> rank.config().closeTimeout())
              .max(Comparator.naturalOrder())
              .orElseGet(() -> CommunicatorConfig.defaults().closeTimeout())
              .toNanos();
      if (!awaitIdle(timeout)) {
        AbortedException reason =
            Wording.closedEarly(describe() + ": unfinished when it was closed");
        ranks.forEach(rank -> rank.health().fail(reason));
        // Launches that wait for another stream end all the same.
        boolean ignored = awaitIdle(timeout);
      }
    } catch (InterruptedWaitException e) {
      giveUp(Objects.requireNonNull(lastStream));
    }
    synchronized (this) {
      destroy();
    }
    ranks.forEach(rank -> rank.holders().remove(this));
  }

  /** NCCL must be through with the graph: what an interrupted thread would wait for is aborted. */
  private void giveUp(CudaStream stream) {
    AbortedException reason =
        Wording.closedEarly("a graph was unfinished when it was closed by an interrupted thread");
    ranks.forEach(rank -> rank.health().fail(reason));
    while (passed != launched) {
      stream.waits().awaitHeadUninterruptibly();
    }
  }
}
