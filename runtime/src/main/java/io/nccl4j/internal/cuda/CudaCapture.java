package io.nccl4j.internal.cuda;

import io.nccl4j.Communicator;
import io.nccl4j.Graph;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.bindings.cuda.Cuda;
import io.nccl4j.internal.cuda.driver.Driver;
import io.nccl4j.internal.cuda.nccl.CudaHolders;
import io.nccl4j.internal.schedule.CaptureNodes;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * A capture under way. CUDA captures the work itself; here it is noted what was captured, for
 * messages, updates and checks. Used by one thread at a time, as its streams are, but for {@link
 * #communicatorEnds}.
 */
final class CudaCapture implements CudaHolders.Holder {
  private final CudaStream origin;
  private final CaptureNodes<CudaStream, CudaNode> nodes;
  private final Set<CudaCommunicator> communicators = new LinkedHashSet<>();
  private final List<Runnable> afterwards = new ArrayList<>();
  private boolean over;
  private boolean givenUp;

  CudaCapture(CudaStream origin) {
    this.origin = origin;
    this.nodes = new CaptureNodes<>(origin, CudaNode::after);
  }

  boolean hasEnded() {
    return nodes.hasEnded();
  }

  /** Numbers works in the order of their calls. */
  int nextOrder() {
    return nodes.nextOrder();
  }

  void addPlan(CudaStream stream, CudaWork first) {
    List<CudaWork> plan = new ArrayList<>();
    for (CudaWork work = first; work != null; work = (CudaWork) work.next) {
      plan.add(work);
      if (communicators.add(work.communicator)) {
        work.communicator.holders().add(this);
      }
    }
    nodes.add(stream, CudaNode.plan(plan, frontier(stream)));
  }

  void addTransfer(CudaStream stream, int kind, Object target, @Nullable Object source) {
    nodes.add(stream, CudaNode.transfer(kind, target, source, frontier(stream)));
  }

  /** The nodes after which the stream's next one comes. */
  int[] frontier(CudaStream stream) {
    return nodes.frontier(stream);
  }

  /** Makes the stream's next node come after these nodes, too; the stream may join by that. */
  void join(CudaStream stream, int[] after) {
    nodes.join(stream, after);
  }

  /** Ends the capture for all its streams. */
  Graph end(CudaStream stream) {
    nodes.requireOrigin(stream);
    MemorySegment graph = endNative();
    leaveAll();
    // What an abort has not given up yet, a thread of its own is about to.
    if (givenUp || communicators.stream().anyMatch(CudaCapture::isLost)) {
      destroy(graph);
      release();
      throw new InvalidUsageException(
          "endCapture: a communicator in the capture has failed or was closed",
          "capture with communicators that stay open");
    }
    try {
      CudaGraph captured = CudaGraph.of((CudaDevice) origin.device(), graph, nodes.joinedNodes());
      release();
      return captured;
    } catch (InvalidUsageException e) {
      destroy(graph);
      release();
      throw e;
    }
  }

  /**
   * A stream is closed: without the first one there is no capture. CUDA has the others in it to the
   * end.
   *
   * @param destroy what ends the CUDA stream
   */
  void drop(CudaStream stream, Runnable destroy) {
    if (!nodes.drop(stream)) {
      stream.leaveCapture();
      afterwards.add(destroy);
      return;
    }
    destroy(endNative());
    leaveAll();
    release();
    destroy.run();
  }

  private void leaveAll() {
    nodes.end();
    nodes.streams().forEach(CudaStream::leaveCapture);
    afterwards.forEach(Runnable::run);
    afterwards.clear();
  }

  private void release() {
    communicators.forEach(held -> held.holders().remove(this));
  }

  /** The captured graph, NULL if CUDA has none: it was ended before, or does not hang together. */
  private synchronized MemorySegment endNative() {
    if (over) {
      return MemorySegment.NULL;
    }
    over = true;
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment out = arena.allocate(ValueLayout.ADDRESS);
      int result = Cuda.cuStreamEndCapture(origin.handle(), out);
      if (result != Driver.CAPTURE_UNJOINED) {
        Driver.check(result, "cuStreamEndCapture");
      }
      return out.get(ValueLayout.ADDRESS, 0);
    }
  }

  private static boolean isLost(CudaCommunicator communicator) {
    return communicator.state() != Communicator.State.READY;
  }

  private static void destroy(MemorySegment graph) {
    if (!graph.equals(MemorySegment.NULL)) {
      Driver.check(Cuda.cuGraphDestroy(graph), "cuGraphDestroy");
    }
  }

  /** Gives the capture up. */
  @Override
  public synchronized void communicatorEnds() {
    if (!over) {
      givenUp = true;
      destroy(endNative());
    }
  }
}
