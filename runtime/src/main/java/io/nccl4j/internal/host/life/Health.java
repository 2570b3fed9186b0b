package io.nccl4j.internal.host.life;

import io.nccl4j.AbortedException;
import io.nccl4j.NcclException;
import io.nccl4j.PeerFailedException;
import io.nccl4j.internal.host.engine.Accord;
import io.nccl4j.internal.host.engine.EngineWork;
import io.nccl4j.internal.host.engine.Outside;
import io.nccl4j.internal.host.layout.ControlBlock;
import io.nccl4j.internal.host.layout.News;
import io.nccl4j.internal.host.layout.RankState;
import io.nccl4j.internal.host.layout.Reason;
import io.nccl4j.internal.schedule.FailureNotice;
import io.nccl4j.internal.schedule.ScheduledCommunicator;
import io.nccl4j.internal.spi.Failures;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.VarHandle;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Whether one rank's communicator can go on: its own failure, the first one only, which it tells
 * the other ranks, and theirs, which it looks for while it waits. Thread-safe.
 */
public final class Health implements Accord, Outside.Own {
  /** How long to wait for other hosts to report what their ranks called last. */
  private static final long ANSWER_NANOS = 500_000_000;

  /** Added to it for each rank, because all ranks that wait may ask at once. */
  private static final long ANSWER_NANOS_PER_RANK = 50_000_000;

  private static final Reason NO_REASON = new Reason(List.of(), "");

  private final ControlBlock control;
  private final LocalPart part;
  private final Explanation explanation;
  private final int rank;
  private final int nranks;
  private final int sharing;
  private final Activity<?> activity;
  private final long timeoutNanos;
  private final FailureNotice notice;

  /** Whether deaths are noted in another control block than this communicator's. */
  private final boolean splitOff;

  private volatile long seenEpoch;
  private volatile long seenGroupEpoch;
  private volatile boolean someoneLeft;
  private volatile boolean peersQuiet;
  private volatile boolean closed;
  private volatile @Nullable NcclException failure;
  private volatile @Nullable Outside outside;

  /**
   * A rank that has not failed.
   *
   * @param sharing how many ranks of its communicator share the processors here
   */
  public Health(
      int rank,
      LocalPart part,
      int sharing,
      Explanation explanation,
      Activity<?> activity,
      long timeoutNanos,
      FailureNotice notice) {
    this.control = part.control();
    this.part = part;
    this.explanation = explanation;
    this.activity = activity;
    this.rank = rank;
    this.nranks = part.nranks();
    this.sharing = sharing;
    this.timeoutNanos = timeoutNanos;
    this.notice = notice;
    this.splitOff = !part.group().isIn(control);
  }

  @Override
  public String name() {
    return explanation.name();
  }

  public @Nullable NcclException failure() {
    return failure;
  }

  @Override
  public boolean isGood() {
    return failure == null;
  }

  // ---- other hosts

  /** There are ranks on other hosts, who are told of a failure, and tell of theirs. */
  public void reach(Outside others) {
    outside = others;
    explanation.reach(others);
  }

  @Override
  public synchronized void say(int of, MemorySegment news, long offset) {
    if (closed) {
      news.asSlice(offset, Outside.NEWS_BYTES).fill((byte) 0);
    } else {
      News.write(control, of, news, offset);
    }
  }

  @Override
  public synchronized long shownCount(int k, long call, int of) {
    return closed ? -1 : control.shownCount(k, call, of);
  }

  @Override
  public synchronized void hear(int other, MemorySegment news, long offset) {
    if (!closed) {
      News.read(control, other, news, offset);
      look();
    }
  }

  // ---- own failure

  /** Fails this communicator, once, and tells the other ranks. */
  public void fail(NcclException cause) {
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
  public synchronized void fail(NcclException cause, int code, int other, long seq) {
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
    // What the program writes to its buffers from now on comes after that, for all to see.
    VarHandle.fullFence();
    failure = cause;
    notice.failed(cause);
    Outside others = outside;
    if (others != null) {
      others.tell();
    }
    becomeQuietIfIdle();
  }

  @Override
  public synchronized void failUnlessClosed(NcclException cause) {
    if (!closed) {
      fail(cause);
    }
  }

  /** Fails it, unless it is closed and its control block may be gone. Any thread. */
  public synchronized void failUnlessClosed(NcclException cause, int code) {
    if (!closed) {
      look();
      fail(cause, code, rank, 0);
    }
  }

  /** Looks for failures of other ranks. Any thread may, while it is in no call of this rank. */
  public void lookUnlessClosed() {
    Outside others = outside;
    if (others != null) {
      others.look();
    }
    lookHere();
  }

  private synchronized void lookHere() {
    if (!closed) {
      look();
    }
  }

  /** Tells the others when this failed rank has no work left; it may be closed. Any thread. */
  public synchronized void becomeQuietIfIdle() {
    if (!closed && failure != null && activity.isIdle()) {
      addFlag(RankState.QUIET);
    }
  }

  /** Ends what any thread may do at any time: the control block may be gone soon. */
  public synchronized void close() {
    closed = true;
  }

  /** Whether it is closed. */
  public boolean isClosed() {
    return closed;
  }

  // ---- contradictions

  @Override
  public NcclException mismatch(EngineWork work, int peer) {
    if (work.isCollective()) {
      return mismatch(work.seq, peer);
    }
    NcclException e = explanation.messages(work, peer);
    fail(e, RankState.LANE_MISMATCH, peer, work.seq);
    return e;
  }

  /** Ranks called different collectives, the last of which is {@code until}. Fails. */
  public NcclException mismatch(long until, int peer) {
    long seq = explanation.firstDifference(peer, until);
    NcclException e = explanation.collectives(peer, seq);
    fail(e, RankState.MISMATCH, peer, seq);
    return e;
  }

  @Override
  public NcclException countMismatch(
      EngineWork work, int peer, long theirs, long own, String verb) {
    NcclException e = explanation.counts(work, peer, theirs, own, verb);
    fail(e, RankState.MISMATCH, peer, work.seq);
    return e;
  }

  /** What the rank has in common with others of this process. */
  public LocalPart part() {
    return part;
  }

  /** What of it is unfinished. */
  public Activity<?> activity() {
    return activity;
  }

  int sharing() {
    return sharing;
  }

  /** Shows the others a flag of {@link RankState}, too. */
  public void addFlag(long flag) {
    long state = control.state(rank);
    long before = control.getAcquire(state);
    while (!control.compareAndSet(state, before, before | flag)) {
      before = control.getAcquire(state);
    }
  }

  /** Notes since when a work waits, and fails when its deadline has passed. */
  public void checkDeadline(EngineWork work, long now) {
    work.waiting();
    if (work.slowSince == 0) {
      work.slowSince = now;
    } else if (now - work.slowSince > timeoutNanos) {
      Outside others = outside;
      if (others != null && failure == null) {
        others.ask(ANSWER_NANOS + nranks * ANSWER_NANOS_PER_RANK);
      }
      fail(explanation.incomplete(work, timeoutNanos));
    }
  }

  // ---- others' failures

  /** Looks for failures if something has changed; cheap if not. */
  public void look() {
    if (hasNews()) {
      lookAtAll();
    }
  }

  /** Whether a rank has failed, died or left since somebody looked. */
  public boolean hasNews() {
    return control.epoch() != seenEpoch || splitOff && part.group().epoch() != seenGroupEpoch;
  }

  @Override
  public boolean isGoodForAll() {
    VarHandle.acquireFence();
    look();
    return failure == null;
  }

  /** Fails if a rank has failed or died, or if the one the work waits for has left. */
  public void check(EngineWork work) {
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
    LocalRank local = peer < 0 ? null : part.rank(peer);
    if (local != null && local.hasEndedWithout(work, rank)) {
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
      if (!RankState.hasLeft(state) && part.isDead(k)) {
        gone.add(k);
        if (RankState.code(state) <= RankState.ALIVE) {
          died.add(k);
        }
      }
    }
    // A rank that failed before it died tells why it did.
    for (int k = 0; k < nranks && failure == null && died.isEmpty(); k++) {
      if (k != rank) {
        failLike(origin(k));
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

  /** The rank that {@code k} misses, if that has said why it failed; otherwise {@code k}. */
  private int origin(int k) {
    long state = control.getAcquire(control.state(k));
    int other = RankState.other(state);
    if (RankState.code(state) != RankState.PEER_LOST || other == rank || other >= nranks) {
      return k;
    }
    long missed = control.getAcquire(control.state(other));
    boolean knowsMore =
        RankState.hasReason(missed) && RankState.code(missed) != RankState.PEER_LOST;
    return knowsMore ? other : k;
  }

  /** Another rank failed: this one cannot go on either, and says why and because of whom. */
  private void failLike(int k) {
    long state = control.getAcquire(control.state(k));
    int other = RankState.other(state);
    long seq = RankState.seq(state);
    int code = RankState.code(state);
    if (!RankState.hasReason(state)) {
      return;
    }
    String who = "rank " + k + " of communicator " + explanation.name();
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
    LocalRank local = part.rank(k);
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
  public boolean isQuiet(int k) {
    // Read before the state, which then shows every rank that came.
    boolean complete = part.isComplete();
    long state = control.getAcquire(control.state(k));
    return RankState.isQuiet(state)
        || complete && RankState.code(state) == 0
        || part.isDead(k)
        // What ranks elsewhere may still write, ends when this one fails.
        || !part.isHere(k);
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

  /** The ranks that are not quiet, for messages; empty if all are by now. */
  @Override
  public String restless() {
    StringBuilder text = new StringBuilder();
    for (int k = 0; k < nranks && !peersAreQuiet(); k++) {
      if (k != rank && !isQuiet(k)) {
        text.append(text.isEmpty() ? "" : ", ").append("rank ").append(k);
      }
    }
    return text.toString();
  }
}
