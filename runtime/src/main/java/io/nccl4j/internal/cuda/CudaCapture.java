package io.nccl4j.internal.cuda;

import io.nccl4j.Communicator;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.bindings.cuda.Cuda;
import io.nccl4j.internal.cuda.driver.Driver;
import io.nccl4j.internal.cuda.driver.Gpu;
import io.nccl4j.internal.cuda.nccl.CudaHolders;
import io.nccl4j.internal.cuda.nccl.CudaRank;
import io.nccl4j.internal.schedule.Capture;
import io.nccl4j.internal.schedule.StreamEngine;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;

/**
 * A capture under way. CUDA captures the work itself; here it is noted what was captured, for
 * messages, updates and checks. Used by one thread at a time, as its streams are, but for {@link
 * #communicatorEnds}.
 */
final class CudaCapture extends Capture<CudaWork> implements CudaHolders.Holder {
  private final MemorySegment stream;
  private final Gpu gpu;
  private final Set<CudaRank> ranks = new LinkedHashSet<>();
  private final List<Runnable> afterwards = new ArrayList<>();
  private boolean over;
  private boolean givenUp;

  /** A capture that begins on a stream, of which this is CUDA's handle. */
  CudaCapture(StreamEngine<CudaWork> origin, MemorySegment stream, Gpu gpu) {
    super(origin);
    this.stream = stream;
    this.gpu = gpu;
  }

  /** Notes that it holds works of these communicators, which end it when they end. */
  void hold(CudaWork plan) {
    for (CudaWork work = plan; work != null; work = (CudaWork) work.next) {
      if (ranks.add(work.rank)) {
        work.rank.holders().add(this);
      }
    }
  }

  /** Ends the capture for all its streams. */
  CudaGraph end(StreamEngine<CudaWork> on) {
    requireOrigin(on);
    MemorySegment graph = endNative();
    endForAll();
    // What an abort has not given up yet, a thread of its own is about to.
    if (givenUp || ranks.stream().anyMatch(CudaCapture::isLost)) {
      destroy(graph);
      release();
      throw new InvalidUsageException(
          "endCapture: a communicator in the capture has failed or was closed",
          "capture with communicators that stay open");
    }
    try {
      CudaGraph captured = CudaGraph.of(gpu, graph, joinedNodes());
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
  void drop(StreamEngine<CudaWork> closed, Runnable destroy) {
    if (!beganOn(closed)) {
      drop(closed);
      afterwards.add(destroy);
      return;
    }
    destroy(endNative());
    endForAll();
    release();
    destroy.run();
  }

  private void endForAll() {
    end();
    afterwards.forEach(Runnable::run);
    afterwards.clear();
  }

  private void release() {
    ranks.forEach(held -> held.holders().remove(this));
  }

  /** The captured graph, NULL if CUDA has none: it was ended before, or does not hang together. */
  private synchronized MemorySegment endNative() {
    if (over) {
      return MemorySegment.NULL;
    }
    over = true;
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment out = arena.allocate(ValueLayout.ADDRESS);
      int result = Cuda.cuStreamEndCapture(stream, out);
      if (result != Driver.CAPTURE_UNJOINED) {
        Driver.check(result, "cuStreamEndCapture");
      }
      return out.get(ValueLayout.ADDRESS, 0);
    }
  }

  private static boolean isLost(CudaRank rank) {
    return rank.state() != Communicator.State.READY;
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
