package io.nccl4j.internal.host.engine;

import io.nccl4j.NcclException;
import io.nccl4j.internal.host.layout.Layout;
import io.nccl4j.internal.host.memory.HostBuffer;
import io.nccl4j.internal.operation.Operation;
import org.jspecify.annotations.Nullable;

/**
 * Which operations of a chain may show their data to the peers before their turn: small ones that
 * read nothing an unfinished one before them writes. While a rank waits for one exchange the next
 * ones are on their way then, which plain calls cannot have, since nobody knows what follows them.
 *
 * <p>Barriers, copies and fills are never overtaken: others may count on them being done.
 */
public final class Lookahead {
  /** For each node its work if it may be shown early, else null. */
  private final @Nullable EngineWork[] works;

  /** What carries them out. */
  private final @Nullable CollectiveEngine[] engines;

  /** How many nodes must be done before a work may be shown. */
  private final int[] needed;

  private int shown;
  private int seen;

  /**
   * The works of a chain.
   *
   * @param works for each node its work; null where that is not one collective
   * @param engines of these works
   */
  public Lookahead(@Nullable EngineWork[] works, @Nullable CollectiveEngine[] engines) {
    this.works = works;
    this.engines = engines;
    needed = new int[works.length];
    for (int i = 0; i < works.length; i++) {
      EngineWork work = works[i];
      CollectiveEngine engine = engines[i];
      if (work == null || engine == null || !isCandidate(work, engine)) {
        works[i] = null;
      }
      needed[i] = i;
      for (int j = i - 1; j > i - Layout.OUTBOX_SLOTS && mayOvertake(i, j); j--) {
        needed[i] = j;
      }
    }
  }

  private static boolean isCandidate(EngineWork work, CollectiveEngine engine) {
    // Memory from elsewhere may be mapped twice, so that its addresses tell nothing.
    return work.operation != Operation.BARRIER
        && engine.isExchange()
        && engine.isLowLatency(work)
        && (work.send == null || work.sendBuffer().isShared())
        && work.op.deviceScalar() == null;
  }

  private boolean mayOvertake(int i, int j) {
    EngineWork work = works[i];
    EngineWork other = j < 0 ? null : works[j];
    return work != null
        && other != null
        && engines[i] == engines[j]
        && other.order < work.order
        && (work.send == null || other.recv == null || !overlap(work, other));
  }

  private static boolean overlap(EngineWork reader, EngineWork writer) {
    HostBuffer from = reader.sendBuffer();
    HostBuffer to = writer.recvBuffer();
    return from.address() < to.address() + to.byteSize()
        && to.address() < from.address() + from.byteSize();
  }

  /** Before a launch runs. */
  public void begin() {
    shown = 0;
    seen = 0;
  }

  /** Whether a node is a small collective that may be shown early. */
  public boolean isSmall(int node) {
    return works[node] != null;
  }

  /** Shows what may be shown now, by the stream's owner; {@code first} nodes are done. */
  public void advance(int first) {
    int next = Math.max(shown, first);
    while (next < works.length && needed[next] <= first && post(next, next == first)) {
      next++;
    }
    shown = next;
    // The peers' lines are fetched side by side so, instead of one after the other.
    int look = Math.max(seen, first);
    while (look < next && look(look)) {
      look++;
    }
    seen = look;
  }

  /** False if that must wait, or goes wrong; the work's own step finds out. */
  private boolean post(int node, boolean first) {
    EngineWork work = works[node];
    CollectiveEngine engine = engines[node];
    try {
      return work != null && engine != null && engine.postEarly(work, first);
    } catch (NcclException | IllegalStateException e) {
      return false;
    }
  }

  private boolean look(int node) {
    EngineWork work = works[node];
    CollectiveEngine engine = engines[node];
    return work != null && engine != null && engine.look(work);
  }
}
