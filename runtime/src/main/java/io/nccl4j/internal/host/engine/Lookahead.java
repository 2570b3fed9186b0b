package io.nccl4j.internal.host.engine;

import io.nccl4j.NcclException;
import io.nccl4j.internal.host.layout.Layout;
import io.nccl4j.internal.host.memory.HostBuffer;
import io.nccl4j.internal.operation.Operation;
import io.nccl4j.internal.operation.Party;
import io.nccl4j.internal.schedule.Padded;
import org.jspecify.annotations.Nullable;

/**
 * Which entries of a queue may show their data to the peers before their turn: small collectives
 * that read nothing an unfinished one before them writes. While a rank waits for one exchange the
 * next ones are on their way then.
 *
 * <p>In operations with a root nobody waits for more than one rank: they gain nothing. Barriers,
 * copies, fills and everything large are never overtaken: others may count on them being done.
 *
 * <p>Used by the owner of the queue, who adds the entries in their order.
 */
public final class Lookahead extends Padded {
  /** For each entry its work if it is a small collective, else null. */
  private final @Nullable EngineWork[] works;

  /** What carries them out. */
  private final @Nullable CollectiveEngine[] engines;

  /** Up to which entry all must be done before one may be shown. */
  private final long[] needed;

  private final int mask;

  private long added;
  private long shown;
  private long seen;

  // From start on all that were added are small collectives of one rank, and what they write lies
  // between low and high.
  private long start;
  private long low;
  private long high;

  /**
   * A lookahead without entries.
   *
   * @param capacity how many unfinished entries it knows at a time; a power of two
   */
  public Lookahead(int capacity) {
    works = new EngineWork[capacity];
    engines = new CollectiveEngine[capacity];
    needed = new long[capacity];
    mask = capacity - 1;
  }

  // ---- adding

  /** The entry to add next, if all before {@code first} are done. */
  public long next(long first) {
    return Math.max(added, first);
  }

  /** Adds what is not one collective. */
  public void addOther(long entry) {
    works[(int) entry & mask] = null;
    added = entry + 1;
    start = added;
  }

  /**
   * Adds a collective.
   *
   * @param first what lies before is done
   */
  public void add(long entry, long first, EngineWork work, CollectiveEngine engine) {
    if (!isCandidate(work, engine)) {
      addOther(entry);
      return;
    }
    int index = (int) entry & mask;
    works[index] = work;
    engines[index] = engine;
    start = Math.max(start, first);
    if (start >= entry || engines[(int) (entry - 1) & mask] != engine) {
      start = entry;
      low = Long.MAX_VALUE;
      high = Long.MIN_VALUE;
    }
    needed[index] = needed(entry, work);
    if (work.recv != null) {
      HostBuffer to = work.recvBuffer();
      low = Math.min(low, to.address());
      high = Math.max(high, to.address() + to.byteSize());
    }
    added = entry + 1;
  }

  /** Whether it is a small one in which each rank waits for all others. */
  public static boolean isSmall(EngineWork work, CollectiveEngine engine) {
    Operation operation = work.operation;
    return operation.senders() == Party.ALL
        && operation.receivers() == Party.ALL
        && operation != Operation.BARRIER
        && engine.canPostEarly(work);
  }

  private static boolean isCandidate(EngineWork work, CollectiveEngine engine) {
    // Memory from elsewhere may be mapped twice, so that its addresses tell nothing.
    return isSmall(work, engine)
        && (work.send == null || work.sendBuffer().isShared())
        && work.op.deviceScalar() == null;
  }

  private long needed(long entry, EngineWork work) {
    long earliest = Math.max(start, entry - Layout.OUTBOX_SLOTS + 1);
    if (work.send == null) {
      return earliest;
    }
    HostBuffer from = work.sendBuffer();
    long begin = from.address();
    long end = begin + from.byteSize();
    if (begin < high && low < end) {
      for (long other = entry - 1; other >= earliest; other--) {
        EngineWork writer = works[(int) other & mask];
        if (writer != null && writer.writes(from)) {
          return other + 1;
        }
      }
    }
    return earliest;
  }

  // ---- showing

  /** Begins anew with the entries that were added. */
  public void rewind() {
    shown = 0;
    seen = 0;
  }

  /** Whether an entry that was added may be shown when those before {@code first} are done. */
  public boolean isFree(long entry, long first) {
    int index = (int) entry & mask;
    return works[index] != null && needed[index] <= first;
  }

  /** Whether an entry was shown, and so were those before it. */
  public boolean isShown(long entry) {
    return shown > entry;
  }

  /**
   * Shows what may be shown now.
   *
   * @param first what lies before is done
   * @return whether all that were added are shown
   */
  public boolean advance(long first) {
    long next = Math.max(shown, first);
    while (next < added && needed[(int) next & mask] <= first && show(next, next == first)) {
      next++;
    }
    shown = next;
    return next >= added;
  }

  /** False if that must wait, or goes wrong; the work's own step finds out. */
  private boolean show(long entry, boolean first) {
    int index = (int) entry & mask;
    EngineWork work = works[index];
    CollectiveEngine engine = engines[index];
    if (work == null || engine == null) {
      return false;
    }
    if (first) {
      if (work.stage != EngineWork.QUEUED) {
        return true;
      }
    } else {
      // What other streams are given in between is not overtaken.
      EngineWork before = works[(int) (entry - 1) & mask];
      if (before == null || work.seq != before.seq + 1) {
        return false;
      }
    }
    try {
      return engine.postEarly(work, first);
    } catch (NcclException | IllegalStateException e) {
      return false;
    }
  }

  /**
   * Looks whether the peers have shown theirs: their lines are fetched side by side so, instead of
   * one after the other.
   */
  public void look(long first) {
    long look = Math.max(seen, first);
    while (look < shown && look(works[(int) look & mask], engines[(int) look & mask])) {
      look++;
    }
    seen = look;
  }

  private static boolean look(@Nullable EngineWork work, @Nullable CollectiveEngine engine) {
    try {
      return work != null && engine != null && engine.look(work);
    } catch (NcclException | IllegalStateException | IndexOutOfBoundsException e) {
      // A peer may have shown an address where there is no buffer: the work's own step finds out.
      return false;
    }
  }
}
