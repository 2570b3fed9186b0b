package io.nccl4j.cuda;

import io.nccl4j.Graph;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.bindings.cuda.Cuda;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.jspecify.annotations.Nullable;

/**
 * A capture under way. CUDA captures the work itself; here it is noted what was captured, for
 * messages, updates and checks. Used by one thread at a time, as its streams are.
 */
final class CudaCapture implements CudaCommunicator.Holder {
  private static final int CAPTURE_ERRORS = 900;
  private static final int LAST_CAPTURE_ERROR = 908;

  private final CudaStream origin;
  private final List<CudaNode> nodes = new ArrayList<>();
  private final Map<CudaStream, TreeSet<Integer>> frontiers = new HashMap<>();
  private int works;
  private volatile boolean ended;
  private boolean givenUp;

  CudaCapture(CudaStream origin) {
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

  void addPlan(CudaStream stream, CudaWork first) {
    List<CudaWork> plan = new ArrayList<>();
    for (CudaWork work = first; work != null; work = (CudaWork) work.next) {
      plan.add(work);
      work.communicator.heldBy(this);
    }
    add(stream, CudaNode.plan(plan, frontier(stream)));
  }

  void addTransfer(CudaStream stream, int kind, Object target, @Nullable Object source) {
    add(stream, CudaNode.transfer(kind, target, source, frontier(stream)));
  }

  private void add(CudaStream stream, CudaNode node) {
    TreeSet<Integer> frontier = frontiers.get(stream);
    frontier.clear();
    frontier.add(nodes.size());
    nodes.add(node);
  }

  /** The nodes after which the stream's next one comes. */
  int[] frontier(CudaStream stream) {
    return frontiers.get(stream).stream().mapToInt(Integer::intValue).toArray();
  }

  /** Makes the stream's next node come after these nodes, too; the stream may join by that. */
  void join(CudaStream stream, int[] after) {
    TreeSet<Integer> frontier = frontiers.computeIfAbsent(stream, ignored -> new TreeSet<>());
    for (int node : after) {
      frontier.add(node);
    }
  }

  /** Ends the capture for all its streams. */
  Graph end(CudaStream stream) {
    if (stream != origin) {
      throw new InvalidUsageException(
          "endCapture: this stream joined a capture that began on another stream",
          "end it where it began");
    }
    MemorySegment graph;
    synchronized (this) {
      leave();
      if (givenUp) {
        throw new InvalidUsageException(
            "endCapture: a communicator in the capture has failed or was closed",
            "capture with communicators that stay open");
      }
      graph = endNative();
    }
    CudaGraph captured = CudaGraph.of((CudaDevice) origin.device(), graph, List.copyOf(nodes));
    release();
    return captured;
  }

  private void leave() {
    ended = true;
    frontiers.keySet().forEach(CudaStream::leaveCapture);
  }

  private void release() {
    CudaExecutableGraph.communicatorsOf(nodes).forEach(held -> held.releasedBy(this));
  }

  private MemorySegment endNative() {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment out = arena.allocate(ValueLayout.ADDRESS);
      int result = Cuda.cuStreamEndCapture(origin.handle(), out);
      if (result == Driver.CAPTURE_UNJOINED) {
        throw new InvalidUsageException(
            "endCapture: a stream that joined the capture was not joined back",
            "record an event on it after its last work, and wait for that event on the first"
                + " stream");
      }
      Driver.check(result, "cuStreamEndCapture");
      return out.get(ValueLayout.ADDRESS, 0);
    }
  }

  /** Gives the capture up; one that is invalid or not joined ends, too. */
  @Override
  public synchronized void communicatorEnds() {
    if (!ended && !givenUp) {
      givenUp = true;
      try (Arena arena = Arena.ofConfined()) {
        MemorySegment out = arena.allocate(ValueLayout.ADDRESS);
        int result = Cuda.cuStreamEndCapture(origin.handle(), out);
        MemorySegment graph = out.get(ValueLayout.ADDRESS, 0);
        if (!graph.equals(MemorySegment.NULL)) {
          Driver.check(Cuda.cuGraphDestroy(graph), "cuGraphDestroy");
        } else if (result < CAPTURE_ERRORS || result > LAST_CAPTURE_ERROR) {
          Driver.check(result, "cuStreamEndCapture");
        }
      }
    }
  }
}
