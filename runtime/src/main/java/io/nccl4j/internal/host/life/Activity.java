package io.nccl4j.internal.host.life;

import io.nccl4j.internal.schedule.Work;
import io.nccl4j.internal.schedule.WorkFifo;
import java.util.concurrent.atomic.AtomicInteger;
import org.jspecify.annotations.Nullable;

/**
 * What of a rank is unfinished: works, graphs, and splits, in which it may touch the control block
 * of a child. Any thread may ask.
 *
 * @param <W> its works
 */
public final class Activity<W extends Work> {
  private final WorkFifo<W> fifo;
  private final AtomicInteger graphs = new AtomicInteger();
  private final AtomicInteger splits = new AtomicInteger();
  private volatile int lastInUse;

  /** Nothing yet. */
  public Activity(WorkFifo<W> fifo) {
    this.fifo = fifo;
  }

  /** Graphs that were launched and have not run. */
  public AtomicInteger graphs() {
    return graphs;
  }

  /** Splits that have begun and not ended. */
  public AtomicInteger splits() {
    return splits;
  }

  /** Whether operations are unfinished. */
  public boolean isBusy() {
    return graphs.get() > 0 || anyInUse() != null;
  }

  boolean isIdle() {
    return !isBusy() && splits.get() == 0;
  }

  /**
   * An unfinished work. The search starts where the last one ended, so that dropping a full FIFO
   * looks at each place about once.
   */
  public @Nullable W anyInUse() {
    int capacity = fifo.capacity();
    int start = lastInUse;
    for (int i = 0; i < capacity; i++) {
      int index = start + i & capacity - 1;
      W work = fifo.at(index);
      if (work.isInUse()) {
        lastInUse = index;
        return work;
      }
    }
    return null;
  }
}
