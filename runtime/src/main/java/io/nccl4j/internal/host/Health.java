package io.nccl4j.internal.host;

import io.nccl4j.AbortedException;
import io.nccl4j.DeadlineException;
import io.nccl4j.NcclException;
import io.nccl4j.PeerFailedException;
import io.nccl4j.internal.host.layout.ControlBlock;
import io.nccl4j.internal.host.layout.RankState;
import io.nccl4j.internal.host.layout.Reason;
import io.nccl4j.internal.host.memory.Quarantine;
import io.nccl4j.internal.schedule.ScheduledCommunicator;
import io.nccl4j.internal.spi.Failures;
import java.lang.invoke.VarHandle;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Whether one rank's communicator can go on: its own failure, the first one only, which it tells
 * the other ranks, and theirs, which it looks for while it waits. Thread-safe.
 */
final class Health implements Quarantine.Peers {
  private static final Reason NO_REASON = new Reason(List.of(), "");

  private final HostCommunicator communicator;
  private final ControlBlock control;
  private final LocalPart part;
  private final Explanation explanation;
  private final int rank;
  private final int nranks;
  private final long timeoutNanos;

  /** Whether deaths are noted in another control block than this communicator's. */
  private final boolean splitOff;

  private volatile long seenEpoch;
  private volatile long seenGroupEpoch;
  private volatile boolean someoneLeft;
  private volatile boolean peersQuiet;
  private volatile @Nullable NcclException failure;

  Health(
      HostCommunicator communicator, LocalPart part, Explanation explanation, long timeoutNanos) {
    this.communicator = communicator;
    this.control = part.control();
    this.part = part;
    this.explanation = explanation;
    this.rank = communicator.rank();
    this.nranks = communicator.nranks();
    this.timeoutNanos = timeoutNanos;
    this.splitOff = !part.group().isIn(control);
  }

  @Override
  public String name() {
    return communicator.name();
  }

  @Nullable NcclException failure() {
    return failure;
  }

  boolean isGood() {
    return failure == null;
  }

  // ---- own failure

  /** Fails this communicator, once, and tells the other ranks. */
  void fail(NcclException cause) {
    int other = cause instanceof PeerFailedException peer ? peer.rank() : rank;
    fail(cause, RankState.codeOf(cause), other, 0);
  }

  /**
   * Fails this communicator, once, and tells the other ranks. They can see it before anybody here
   * does, who may change buffers then: what they have read until they look was right.
   *
   * @param code what they read, see {@link RankState}
   * @param other the other rank concerned, or this one
   * @param seq the operation concerned, or 0
   */
  synchronized void fail(NcclException cause, int code, int other, long seq) {
    if (failure != null) {
      return;
    }
    Reason.write(control, rank, cause);
    long state = control.state(rank);
    long before = control.getAcquire(state);
    while (!control.compareAndSet(
        state, before, before & RankState.LEFT | RankState.of(code, other, seq))) {
      before = control.getAcquire(state);
    }
    control.advanceEpoch();
    failure = cause;
    communicator.becomeQuietIfIdle();
  }

  void addFlag(long flag) {
    long state = control.state(rank);
    long before = control.getAcquire(state);
    while (!control.compareAndSet(state, before, before | flag)) {
      before = control.getAcquire(state);
    }
  }

  /** Notes since when a work waits, and fails when its deadline has passed. */
  void checkDeadline(HostWork work, long now) {
    if (work.slowSince == 0) {
      work.slowSince = now;
    } else if (now - work.slowSince > timeoutNanos) {
      fail(
          new DeadlineException(
              work.describe()
                  + " is not complete after "
                  + timeoutNanos / 1_000_000
                  + " ms, waiting for "
                  + explanation.missing(work)
                  + explanation.backlog(),
              "check whether those ranks hang or called something else; operation-timeout sets the"
                  + " deadline",
              explanation.absent(work)));
    }
  }

  // ---- others' failures

  /** Looks for failures if something has changed; cheap if not. */
  void look() {
    if (hasNews()) {
      lookAtAll();
    }
  }

  /** Whether a rank has failed, died or left since somebody looked. */
  boolean hasNews() {
    return control.epoch() != seenEpoch || splitOff && part.group().epoch() != seenGroupEpoch;
  }

  /**
   * Whether nobody has failed, as far as is known when all reads before this call are done. Before
   * that holds no rank may write to others' buffers, and what it has read of them counts only if it
   * still holds afterwards.
   */
  boolean isGoodForAll() {
    VarHandle.acquireFence();
    look();
    return failure == null;
  }

  /** Fails if a rank has failed or died, or if the one the work waits for has left. */
  void check(HostWork work) {
    look();
    int peer = work.blockedOn;
    if (failure == null
        && someoneLeft
        && peer >= 0
        && RankState.hasLeft(control.getAcquire(control.state(peer)))) {
      if (work.seenLeaving != peer) {
        // Whatever it did before it left is visible from now on: the next step takes another look.
        work.seenLeaving = peer;
        work.timesBlockedThen = work.timesBlocked;
      }
      if (work.timesBlocked == work.timesBlockedThen) {
        return;
      }
      fail(explanation.left(work, peer));
    }
    HostCommunicator local = peer < 0 ? null : part.rank(peer);
    if (local != null && local.hasTaskEnded() && !local.hasCalled(work, rank)) {
      fail(ScheduledCommunicator.taskEnded(peer, rank, work.describe()));
    }
  }

  private synchronized void lookAtAll() {
    long epoch = control.epoch();
    long groupEpoch = part.group().epoch();
    List<Integer> died = new ArrayList<>();
    List<Integer> gone = new ArrayList<>();
    for (int k = 0; k < nranks; k++) {
      if (k == rank) {
        continue;
      }
      long state = control.getAcquire(control.state(k));
      someoneLeft |= RankState.hasLeft(state);
      if (!RankState.hasLeft(state) && part.group().isDead(part.processOf(k))) {
        gone.add(k);
        if (RankState.code(state) <= RankState.ALIVE) {
          died.add(k);
        }
      }
    }
    // A rank that failed before it died tells why it did.
    for (int k = 0; k < nranks && failure == null && died.isEmpty(); k++) {
      if (k != rank) {
        failLike(k, control.getAcquire(control.state(k)));
      }
    }
    if (failure == null && !gone.isEmpty()) {
      fail(explanation.died(died.isEmpty() ? gone : died));
    } else if (failure instanceof PeerFailedException known) {
      addDeaths(known, died);
    }
    seenEpoch = epoch;
    seenGroupEpoch = groupEpoch;
  }

  /** Ranks that died since: what is thrown from now on names them, too. */
  private void addDeaths(PeerFailedException known, List<Integer> died) {
    List<Integer> more = new ArrayList<>(died);
    more.removeAll(known.failedRanks());
    if (!more.isEmpty()) {
      List<Integer> all = new ArrayList<>(known.failedRanks());
      all.addAll(more);
      failure =
          Failures.again(
              known, known.problem() + "; and " + explanation.deaths(more), known.remedy(), all);
    }
  }

  /** Another rank failed: this one cannot go on either, and says why and because of whom. */
  private void failLike(int k, long state) {
    int other = RankState.other(state);
    long seq = RankState.seq(state);
    int code = RankState.code(state);
    if (code <= RankState.ALIVE || code == RankState.RELAYED) {
      return;
    }
    String who = "rank " + k + " of communicator " + communicator.name();
    if (other >= nranks) {
      failWith(
          k,
          NO_REASON,
          who + " names rank " + other + ", which does not exist, as its reason to fail");
      return;
    }
    Reason reason = Reason.read(control, k, nranks);
    String why = reason.text().isEmpty() ? "" : ": " + reason.text();
    switch (code) {
      case RankState.MISMATCH ->
          relay(k, explanation.collectivesSeenBy(k, other, seq, reason.text()));
      case RankState.LANE_MISMATCH -> relay(k, explanation.messagesSeenBy(k, other, seq));
      case RankState.DEADLINE ->
          failWith(k, reason, who + " gave up because the deadline of an operation passed" + why);
      case RankState.ABORTED ->
          relay(
              k,
              new AbortedException(
                  who + " aborted the communicator" + why,
                  "close it and create a new one",
                  blamed(k, reason)));
      case RankState.LEFT_EARLY ->
          failWith(
              k,
              reason,
              who + " closed its communicator or stream although operations were unfinished" + why);
      case RankState.DROPPED ->
          failWith(k, reason, who + " dropped an operation, because its stream had failed" + why);
      case RankState.PEER_LOST -> {
        if (reason.failedRanks().equals(List.of(rank))) {
          failWith(k, NO_REASON, who + " no longer counts on this rank" + why);
        } else {
          failWith(k, reason, who + " reports that rank " + other + " is gone" + why);
        }
      }
      default -> failWith(k, reason, who + " failed" + why);
    }
  }

  /** The ranks to blame for a rank's failure: those it names, or itself. */
  private static List<Integer> blamed(int k, Reason reason) {
    return reason.failedRanks().isEmpty() ? List.of(k) : reason.failedRanks();
  }

  /** Fails because rank {@code k} did. */
  private void relay(int k, NcclException own) {
    HostCommunicator local = part.rank(k);
    NcclException root = local == null ? null : local.health().failure();
    if (root != null) {
      own.causedBy(root);
    }
    fail(own, RankState.RELAYED, rank, 0);
  }

  private void failWith(int k, Reason reason, String problem) {
    relay(
        k,
        new PeerFailedException(
            blamed(k, reason), problem, "see that rank's message; close this communicator"));
  }

  /**
   * Whether a rank has failed and ended all it did on behalf of this communicator, is dead, or will
   * never come.
   */
  boolean isQuiet(int k) {
    // Read before the state, which then shows every rank that came.
    boolean complete = part.isComplete();
    long state = control.getAcquire(control.state(k));
    return RankState.isQuiet(state)
        || complete && RankState.code(state) == 0
        || part.group().isDead(part.processOf(k));
  }

  /**
   * Whether no other rank can touch this rank's memory on behalf of this communicator; once true,
   * it stays so.
   */
  @Override
  public boolean peersAreQuiet() {
    if (peersQuiet) {
      // The control block may be gone.
      return true;
    }
    for (int k = 0; k < nranks; k++) {
      if (k != rank && !isQuiet(k)) {
        return false;
      }
    }
    peersQuiet = true;
    return true;
  }

  /** The ranks that are not quiet, for messages. */
  @Override
  public String restless() {
    StringBuilder text = new StringBuilder();
    for (int k = 0; k < nranks && !peersAreQuiet(); k++) {
      if (k != rank && !isQuiet(k)) {
        text.append(text.isEmpty() ? "" : ", ").append("rank ").append(k);
      }
    }
    return text.isEmpty() ? "all are quiet by now" : text.toString();
  }
}
