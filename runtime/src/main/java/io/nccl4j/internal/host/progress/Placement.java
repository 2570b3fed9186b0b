package io.nccl4j.internal.host.progress;

import io.nccl4j.bindings.Libc;
import io.nccl4j.bindings.LibcException;
import io.nccl4j.bindings.Processors;
import io.nccl4j.internal.host.engine.EngineWork;
import io.nccl4j.internal.host.layout.ControlBlock;
import io.nccl4j.internal.machine.Machine;
import java.util.BitSet;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;

/**
 * Keeps ranks that wait for each other from sharing a processor while another one is free.
 * Schedulers leave two polling threads where they are for a long time, and each exchange then costs
 * a time slice instead of a cache line.
 *
 * <p>Asked only when polling was in vain: each rank then notes its processor in the control block,
 * and of two on the same one the higher rank moves its thread away. The thread may be moved again
 * by the system: its set of allowed processors is as before.
 */
public final class Placement {
  private static final Logger LOG = LogManager.getLogger(Placement.class);
  private static final long PAUSE_NANOS = 2_000_000;

  private final ControlBlock control;
  private final int rank;
  private final int nranks;
  private final boolean possible;
  private long lastMove = System.nanoTime() - PAUSE_NANOS;

  /**
   * A rank that runs wherever the system has put it.
   *
   * @param sharing how many ranks share the processors here
   */
  public Placement(ControlBlock control, int rank, int nranks, int sharing) {
    this.control = control;
    this.rank = rank;
    this.nranks = nranks;
    possible = sharing > 1 && sharing <= Machine.PROCESSORS && Libc.isAvailable();
  }

  /**
   * Moves the current thread if it shares its processor with the rank that its work waits for; by
   * the owner.
   */
  public void check(EngineWork work, long now) {
    int peer = work.blockedOn;
    if (!possible || peer < 0 || peer == rank || Thread.currentThread().isVirtual()) {
      return;
    }
    int processor = Processors.schedGetcpu();
    control.setOpaque(control.processor(rank), processor + 1L);
    if (rank > peer
        && control.getOpaque(control.processor(peer)) == processor + 1L
        && now - lastMove > PAUSE_NANOS) {
      lastMove = now;
      move(processor);
    }
  }

  private void move(int from) {
    try {
      BitSet allowed = Processors.schedGetaffinity();
      BitSet free = (BitSet) allowed.clone();
      free.clear(from);
      for (int k = 0; k < nranks; k++) {
        int used = (int) control.getOpaque(control.processor(k)) - 1;
        if (k != rank && used >= 0) {
          free.clear(used);
        }
      }
      int to = free.nextSetBit(0);
      if (to >= 0) {
        BitSet only = new BitSet();
        only.set(to);
        Processors.schedSetaffinity(only);
        Processors.schedSetaffinity(allowed);
        LOG.debug("rank {} moved from processor {} to {}", rank, from, to);
      }
    } catch (LibcException e) {
      LOG.debug("rank {} stays on processor {}", rank, from, e);
    }
  }
}
