package io.nccl4j.internal.host.layout;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;

/**
 * What the ranks of a host show each other of themselves, for the ranks of other hosts: it is
 * copied into their control block, to where the rank would have written it.
 */
public final class News {
  private static final ValueLayout.OfLong WORD = ValueLayout.JAVA_LONG_UNALIGNED;
  private static final int LAST = Long.BYTES;
  private static final int REASON = 2 * Long.BYTES;

  private News() {}

  /** Copies a rank's state, its last collective and its reason. */
  public static void write(ControlBlock control, int rank, MemorySegment to, long offset) {
    to.set(WORD, offset, control.getAcquire(control.state(rank)));
    to.set(WORD, offset + LAST, control.getAcquire(control.ledger(rank) + Layout.LAST));
    Reason.copyOut(control, rank, to, offset + REASON);
  }

  /** Makes them visible here; a rank's first failure stays. */
  public static void read(ControlBlock control, int rank, MemorySegment from, long offset) {
    long told = from.get(WORD, offset);
    control.setRelease(control.ledger(rank) + Layout.LAST, from.get(WORD, offset + LAST));
    long state = control.state(rank);
    long before = control.getAcquire(state);
    if (RankState.code(before) <= RankState.ALIVE && RankState.code(told) > RankState.ALIVE) {
      Reason.copyIn(control, rank, from, offset + REASON);
      // Not that it has left: what it sent before that may still be on its way.
      control.setRelease(state, told & ~(RankState.LEFT | RankState.QUIET | RankState.GONE));
      control.advanceEpoch();
    }
  }
}
