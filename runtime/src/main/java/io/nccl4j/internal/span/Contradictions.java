package io.nccl4j.internal.span;

import io.nccl4j.NcclException;
import io.nccl4j.internal.host.engine.Outside;
import io.nccl4j.internal.operation.Signature;
import io.nccl4j.internal.schedule.Wording;
import java.util.Arrays;
import org.jspecify.annotations.Nullable;

/**
 * Finds out, and says, where this rank's calls contradict those of a rank on another host. The
 * header of a message or block is enough to tell. Two ranks' collectives may differ long before one
 * of them notices: it then suspects the other, asks it where they first differ, and goes no further
 * until the other has answered or cannot.
 *
 * <p>Used by the owner of the port.
 */
final class Contradictions {
  private static final long[] NO_COUNTS = {};

  /** How long a peer may take to say where a contradiction began. */
  private static final long ANSWER_NANOS = 500_000_000;

  private final Wire wire;
  private final CallHistory history;
  private final Outside.Own own;
  private final Wording wording;
  private final int rank;
  private final int nranks;

  private @Nullable Suspicion suspicion;

  /**
   * No contradiction yet.
   *
   * @param own knows with which counts the rank called its collectives
   */
  Contradictions(Wire wire, Outside.Own own, Wording wording, int rank, int nranks) {
    this.wire = wire;
    this.own = own;
    this.wording = wording;
    this.rank = rank;
    this.nranks = nranks;
    history = wire.history();
  }

  /**
   * A contradiction whose beginning is not known.
   *
   * @param call the collective at which it was noticed
   * @param theirs what the peer said of it
   * @param since when that was
   */
  private record Suspicion(long call, int peer, Wire.Header theirs, long since) {}

  /** Suspects a peer, and asks it where they first differ, unless another one is suspected. */
  void notice(long call, int peer, Wire.Header theirs) {
    if (suspicion == null) {
      suspicion = new Suspicion(call, peer, theirs, System.nanoTime());
      wire.askWhere(peer);
    }
  }

  /** Whether a peer is suspected that has not answered. */
  boolean isOpen() {
    return suspicion != null;
  }

  /** The peer that is suspected; −1 if none is. */
  int suspect() {
    return suspicion == null ? -1 : suspicion.peer;
  }

  /**
   * What a peer answers.
   *
   * @return the contradiction; null if this rank did not suspect that peer
   */
  @Nullable NcclException answered(int peer, Wire.Difference theirs) {
    Suspicion was = suspicion;
    if (was == null || was.peer != peer) {
      return null;
    }
    suspicion = null;
    return history.has(theirs.call())
        ? first(peer, theirs)
        : asNoticed(was, "remembers no call that differs");
  }

  /**
   * Ends a suspicion that the peer does not answer.
   *
   * @param isGone whether it cannot any more
   * @return the contradiction; null while an answer may come
   */
  @Nullable NcclException unanswered(boolean isGone) {
    Suspicion was = suspicion;
    if (was == null || !isGone && System.nanoTime() - was.since <= ANSWER_NANOS) {
      return null;
    }
    suspicion = null;
    return asNoticed(was, isGone ? "is gone" : "does not answer");
  }

  // ---- in words

  /** A message, or a block of a collective in which the ranks otherwise agree. */
  NcclException of(Transfer mine, Wire.Header theirs) {
    int peer = mine.link.peer;
    if (mine.link.lane == Wire.MESSAGES) {
      String called = Signature.describe(mine.code, mine.count);
      String other = describe(theirs);
      return Wording.differentMessages(
          mine.sends
              ? wording.messages(peer, other, rank, called)
              : wording.messages(rank, called, peer, other));
    }
    return wording.counts(
        Signature.operation(mine.code).label() + " #" + mine.call,
        rank,
        mine.bytes / mine.elementBytes,
        peer,
        mine.sends ? "expects of" : "sends to",
        theirs.bytes() / mine.elementBytes);
  }

  /** What is known from the header alone in which it was noticed. */
  private NcclException asNoticed(Suspicion of, String how) {
    long call = of.call;
    int peer = of.peer;
    Wire.Header theirs = of.theirs;
    String what;
    if (theirs.call() != call) {
      String other = describe(theirs) + " as its #" + theirs.call();
      what = wording.collectives(call, rank, describe(call), peer, other);
    } else if (!history.agrees(call, theirs.code(), theirs.count())) {
      what = wording.collectives(call, rank, describe(call), peer, describe(theirs));
    } else if (call == 1 || history.agrees(call - 1, theirs.earlierCode(), theirs.earlierCount())) {
      what = wording.earlier(call, rank, peer, describe(call));
    } else {
      String earlier = Signature.describe(theirs.earlierCode(), theirs.earlierCount());
      what = wording.collectives(call - 1, rank, describe(call - 1), peer, earlier);
    }
    return Wording.differentCollectives(
        what + "; what rank " + peer + " called before is not known: it " + how);
  }

  /** The first collective in which this rank and a peer differ, as both know it. */
  private NcclException first(int peer, Wire.Difference theirs) {
    long call = theirs.call();
    String mine = describe(call);
    String other = Signature.describe(theirs.code(), theirs.count());
    String what;
    if (history.agrees(call, theirs.code(), theirs.count())) {
      long[] counts = counts(call);
      int k = Arrays.mismatch(counts, theirs.counts());
      what =
          k >= 0 && k < Math.min(counts.length, theirs.counts().length)
              ? wording.collectives(
                  call,
                  rank,
                  Wording.withCount(mine, counts[k], k),
                  peer,
                  Wording.withCount(other, theirs.counts()[k], k))
              : wording.earlier(call, rank, peer, mine);
    } else {
      what = wording.collectives(call, rank, mine, peer, other);
    }
    return Wording.differentCollectives(
        call > 1 && call == theirs.since()
            ? what + "; what they called before that is no longer known"
            : what);
  }

  /**
   * The counts of all ranks that this one called a collective with; empty if they are not known.
   */
  long[] counts(long call) {
    long code = history.code(call);
    if (code == 0 || !Signature.operation(code).hasCommonCounts()) {
      return NO_COUNTS;
    }
    long[] counts = new long[nranks];
    for (int k = 0; k < counts.length; k++) {
      counts[k] = own.shownCount(rank, call, k);
      if (counts[k] < 0) {
        return NO_COUNTS;
      }
    }
    return counts;
  }

  private String describe(long call) {
    return Signature.describe(history.code(call), history.count(call));
  }

  private static String describe(Wire.Header theirs) {
    return Signature.describe(theirs.code(), theirs.count());
  }
}
