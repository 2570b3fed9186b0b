package io.nccl4j.internal.host;

import io.nccl4j.internal.host.engine.EngineWork;
import io.nccl4j.internal.host.memory.HostBuffer;
import io.nccl4j.internal.operation.Operation;
import org.jspecify.annotations.Nullable;

/**
 * Lets sends leave before their turn, while a message before them in the queue is awaited: those
 * whose data none of the messages before them writes. To other hosts only small ones.
 *
 * <p>By the owner of the queue.
 */
final class SendsAhead {
  /** How many entries are looked at: more than a peer has room for. */
  private static final int MOST = 32;

  private final @Nullable HostWork[] plans;

  /** The first entry with something left to be sent; those from the head on are messages. */
  private long next;

  // What messages from the head on and before next write, and perhaps earlier ones, lies between.
  private long low;
  private long high;

  /**
   * Nothing is sent.
   *
   * @param plans of a queue; their number is a power of two
   */
  SendsAhead(@Nullable HostWork[] plans) {
    this.plans = plans;
  }

  /** Whether sends behind the head have left. */
  boolean isAhead(long head) {
    return next > head + 1;
  }

  /** Sends what can be sent now. */
  void advance(long head, long tail) {
    if (next <= head + 1) {
      if (!areMessages(plan(head))) {
        return;
      }
      next = head + 1;
      forget();
      note(plan(head));
    }
    long end = Math.min(tail, head + MOST);
    while (next < end && areMessages(plan(next)) && sendAll(head, next)) {
      note(plan(next));
      next++;
    }
  }

  private @Nullable HostWork plan(long entry) {
    return plans[(int) entry & plans.length - 1];
  }

  private static boolean areMessages(@Nullable HostWork plan) {
    HostWork work = plan;
    while (work != null && !work.isCollective()) {
      work = (HostWork) work.next;
    }
    return plan != null && work == null;
  }

  private boolean sendAll(long head, long entry) {
    for (HostWork work = plan(entry); work != null; work = (HostWork) work.next) {
      boolean isLeft = work.operation == Operation.SEND && work.stage == EngineWork.QUEUED;
      if (isLeft && !(isReady(work, head, entry) && work.rank.sendEarly(work))) {
        return false;
      }
    }
    return true;
  }

  /** Whether no unfinished message before it writes what it sends. */
  private boolean isReady(HostWork send, long head, long entry) {
    HostBuffer from = send.sendBuffer();
    // Memory from elsewhere may be mapped twice, so that its addresses tell nothing.
    if (!from.isShared()) {
      return false;
    }
    if (from.address() >= high || from.address() + from.byteSize() <= low) {
      return true;
    }
    boolean isWritten = false;
    forget();
    for (long i = head; i < entry; i++) {
      for (HostWork work = plan(i); work != null; work = (HostWork) work.next) {
        isWritten |= work.writes(from);
      }
      note(plan(i));
    }
    return !isWritten;
  }

  private void forget() {
    low = Long.MAX_VALUE;
    high = Long.MIN_VALUE;
  }

  private void note(@Nullable HostWork plan) {
    for (HostWork work = plan; work != null; work = (HostWork) work.next) {
      if (work.recv != null) {
        HostBuffer to = work.recvBuffer();
        low = Math.min(low, to.address());
        high = Math.max(high, to.address() + to.byteSize());
      }
    }
  }
}
