package io.nccl4j.internal.host;

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
final class Lookahead {
  /** For each node its work if it may be shown early, else null. */
  private final @Nullable HostWork[] works;

  /** How many nodes must be done before a work may be shown. */
  private final int[] needed;

  private int shown;
  private int seen;

  Lookahead(GraphStep[] chain) {
    works = new HostWork[chain.length];
    needed = new int[chain.length];
    for (int i = 0; i < chain.length; i++) {
      works[i] = candidate(chain[i]);
      needed[i] = i;
      for (int j = i - 1; j > i - Layout.OUTBOX_SLOTS && mayOvertake(i, j); j--) {
        needed[i] = j;
      }
    }
  }

  private static @Nullable HostWork candidate(GraphStep node) {
    if (node.works.length != 1) {
      return null;
    }
    HostWork work = node.works[0];
    boolean small =
        work.isCollective()
            && work.operation != Operation.BARRIER
            && work.communicator.nranks() > 1
            && work.communicator.collectives().isLowLatency(work);
    // Memory from elsewhere may be mapped twice, so that its addresses tell nothing.
    boolean known =
        (work.send == null || work.sendBuffer().isShared()) && work.op.deviceScalar() == null;
    return small && known ? work : null;
  }

  private boolean mayOvertake(int i, int j) {
    HostWork work = works[i];
    HostWork other = j < 0 ? null : works[j];
    return work != null
        && other != null
        && work.communicator == other.communicator
        && other.order < work.order
        && (work.send == null || other.recv == null || !overlap(work, other));
  }

  private static boolean overlap(HostWork reader, HostWork writer) {
    HostBuffer from = reader.sendBuffer();
    HostBuffer to = writer.recvBuffer();
    return from.address() < to.address() + to.byteSize()
        && to.address() < from.address() + from.byteSize();
  }

  private static boolean look(@Nullable HostWork work) {
    return work != null && work.communicator.collectives().look(work);
  }

  /** Before a launch runs. */
  void begin() {
    shown = 0;
    seen = 0;
  }

  /** The work of a node if it is a small collective, else null. */
  @Nullable HostWork work(int node) {
    return works[node];
  }

  /** Shows what may be shown now, by the stream's owner; {@code first} nodes are done. */
  void advance(HostQueue stream, int first) {
    int next = Math.max(shown, first);
    while (next < works.length && needed[next] <= first) {
      HostWork work = works[next];
      if (work == null || !stream.post(work, next == first)) {
        break;
      }
      next++;
    }
    shown = next;
    // The peers' lines are fetched side by side so, instead of one after the other.
    int look = Math.max(seen, first);
    while (look < next && look(works[look])) {
      look++;
    }
    seen = look;
  }
}
