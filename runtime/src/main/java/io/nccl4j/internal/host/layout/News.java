package io.nccl4j.internal.host.layout;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import org.jspecify.annotations.Nullable;

/**
 * What the ranks of other hosts learn of a rank. It is copied into the control block of their host,
 * to where the rank would have written it if it were there.
 */
public final class News {
  private static final ValueLayout.OfLong WORD = ValueLayout.JAVA_LONG_UNALIGNED;
  private static final int LAST = Long.BYTES;
  private static final int CALL = 2 * Long.BYTES;
  private static final int LAST_CALL = 5 * Long.BYTES;
  private static final int REASON = 8 * Long.BYTES;

  private News() {}

  /** Copies a rank's state, its last collective, the one that it failed at, and its reason. */
  public static void write(ControlBlock control, int rank, MemorySegment to, long offset) {
    Ledger ledger = new Ledger(control, rank);
    long state = control.getAcquire(control.state(rank));
    long last = ledger.lastCollective(rank);
    to.set(WORD, offset, state);
    to.set(WORD, offset + LAST, last);
    write(ledger.findCollective(rank, RankState.seq(state)), to, offset + CALL);
    write(ledger.findCollective(rank, last), to, offset + LAST_CALL);
    Reason.copyOut(control, rank, to, offset + REASON);
  }

  private static void write(Ledger.@Nullable Call call, MemorySegment to, long offset) {
    to.set(WORD, offset, call == null ? 0 : call.seq());
    to.set(WORD, offset + Long.BYTES, call == null ? 0 : call.code());
    to.set(WORD, offset + 2 * Long.BYTES, call == null ? 0 : call.count());
  }

  private static Ledger.Call readCall(MemorySegment from, long offset) {
    return new Ledger.Call(
        from.get(WORD, offset),
        from.get(WORD, offset + Long.BYTES),
        from.get(WORD, offset + 2 * Long.BYTES));
  }

  /** Shows the news to the ranks of this host; a rank's first failure is kept. */
  public static void read(ControlBlock control, int rank, MemorySegment from, long offset) {
    long told = from.get(WORD, offset);
    Ledger ledger = new Ledger(control, rank);
    ledger.mirror(rank, readCall(from, offset + CALL));
    ledger.mirror(rank, readCall(from, offset + LAST_CALL));
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
