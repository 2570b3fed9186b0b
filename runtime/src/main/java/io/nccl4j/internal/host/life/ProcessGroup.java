package io.nccl4j.internal.host.life;

import io.nccl4j.internal.host.layout.ControlBlock;
import io.nccl4j.internal.host.memory.ProcessMemory;
import io.nccl4j.internal.liveness.DeathWatch;
import java.lang.foreign.MemorySegment;
import java.util.UUID;
import java.util.concurrent.atomic.AtomicInteger;
import org.jspecify.annotations.Nullable;

/**
 * The processes that a communicator and all communicators split from it live in, and who of them is
 * dead. Deaths are noted in the first communicator's control block, which lives until every process
 * has left.
 *
 * <p>Thread-safe. Each local rank of each of these communicators holds it; the last one that lets
 * go leaves. The control block and the peers' heaps are looked at a little longer, until all that
 * was counted as {@link #unsettled} is settled.
 */
public final class ProcessGroup {
  private final ControlBlock control;
  private final UUID[] processes;
  private final long[] pids;
  private final int self;
  private final @Nullable DeathWatch watch;
  private final MemorySegment[] heaps;
  private final AtomicInteger unsettled = new AtomicInteger();
  private final boolean[] dead;
  private volatile boolean released;
  private int holders;
  private boolean held;
  private boolean watching;

  /**
   * A group seen from one of its processes.
   *
   * @param processes in the order of their first ranks
   * @param heaps their heaps, mapped; the group's from now on
   * @param self index of this process
   */
  public ProcessGroup(
      ControlBlock control,
      UUID[] processes,
      long[] pids,
      MemorySegment[] heaps,
      int self,
      String name) {
    this.control = control;
    this.heaps = heaps;
    this.processes = processes;
    this.pids = pids;
    this.self = self;
    dead = new boolean[processes.length];
    if (processes.length == 1) {
      watch = null;
    } else {
      MemorySegment[] mutexes = new MemorySegment[processes.length];
      for (int p = 0; p < mutexes.length; p++) {
        mutexes[p] = control.mutex(p);
      }
      watch =
          new DeathWatch(
              "nccl4j-watch-" + name,
              mutexes,
              self,
              control::hasLeft,
              this::died,
              this::cannotWatch);
    }
  }

  public long pid(int index) {
    return pids[index];
  }

  long epoch() {
    return control.epoch();
  }

  /** Whether a process is dead; once true, it stays so, even when the control block is gone. */
  public boolean isDead(int process) {
    if (!dead[process] && (control.isDead(process) || released && hasVanished(process))) {
      dead[process] = true;
    }
    return dead[process];
  }

  /**
   * After leaving, this process watches nobody; a process of another PID namespace has no number
   * here.
   */
  private boolean hasVanished(int process) {
    return pids[process] != 0 && ProcessHandle.of(pids[process]).isEmpty();
  }

  /** Called by every process that finds out, and perhaps again: one may be stopped in between. */
  private void died(int process) {
    control.setDead(process);
    control.advanceEpoch();
  }

  /** Without a watch a peer's death would be an endless wait. */
  private void cannotWatch(Throwable cause) {
    LiveRanks.failAll(
        rank -> rank.part().group() == this,
        "the deaths of other processes can no longer be noticed",
        cause);
  }

  /** Becomes visible to the other processes' watches; before a rank says that it is alive. */
  synchronized void hold() {
    holders++;
    if (watch != null && !held) {
      held = true;
      // Its own, by itself: locking what another process has written could kill this one.
      DeathWatch.format(control.mutex(self));
      watch.hold();
      // What the watch does at a death is done once before, while there is memory to link it.
      control.advanceEpoch();
    }
  }

  /** Whether a process can be watched; it has said that its ranks are alive. */
  public boolean isWatchable(int process) {
    return watch == null || DeathWatch.isFormatted(control.mutex(process));
  }

  /** Starts watching; after all ranks are alive. */
  public synchronized void watch() {
    if (watch != null && !watching) {
      watching = true;
      watch.watch();
    }
  }

  /** Counts something that will look at a control block or a peer's heap, even after leaving. */
  public void unsettled() {
    unsettled.incrementAndGet();
  }

  /** One of them looks no more. */
  public void settled() {
    unsettled.decrementAndGet();
  }

  /**
   * Lets go; the last one leaves the group and, when nobody looks any more, unmaps the peers'
   * heaps.
   */
  synchronized void release() {
    if (--holders > 0) {
      return;
    }
    control.setLeft(self);
    control.advanceEpoch();
    released = true;
    if (watch != null) {
      watch.close();
    }
    ProcessMemory.self()
        .heap()
        .whenSafe(() -> (watch == null || watch.hasEnded()) && unsettled.get() == 0, this::goAway);
  }

  /** Touches the group's control block for the last time; then it may be unmapped, or freed. */
  private void goAway() {
    control.setAway(self);
    for (int p = 0; p < processes.length; p++) {
      if (p != self) {
        ProcessMemory.self().unmapPeer(processes[p]);
      }
    }
  }

  public MemorySegment heap(int process) {
    return heaps[process];
  }

  /** Whether deaths are noted in this control block. */
  boolean isIn(ControlBlock block) {
    return block == control;
  }

  /** Whether no process can touch the group's control block any more. */
  boolean isOver() {
    for (int p = 0; p < processes.length; p++) {
      if (!control.isAway(p) && !isDead(p)) {
        return false;
      }
    }
    return true;
  }
}
