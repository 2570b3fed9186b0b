package io.nccl4j.internal.host;

import io.nccl4j.AbortedException;
import io.nccl4j.InternalErrorException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.SystemErrorException;
import io.nccl4j.internal.host.engine.Lookahead;
import io.nccl4j.internal.host.engine.Step;
import io.nccl4j.internal.host.layout.Layout;
import io.nccl4j.internal.host.layout.RankState;
import io.nccl4j.internal.host.progress.Driven;
import io.nccl4j.internal.host.progress.Progress;
import io.nccl4j.internal.memory.Uses;
import io.nccl4j.internal.spi.Failures;
import java.util.List;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * A ring of tasks. The submitting thread fills in the entry at the tail and shows it; whoever owns
 * the queue takes steps at the head. All progress is in the tasks.
 */
class HostQueue extends Driven {
  private static final int CAPACITY = 1024;

  /**
   * Every eighth small operation that is submitted moves those before it, too. Not each one: owning
   * the queue waits for all stores that the processor has not finished.
   */
  private static final int EAGER = 8;

  /** While collectives only have to be finished, peers are shown more before every eighth one. */
  private static final int AHEAD = 8;

  /** The same of messages: receivers give room back for so many at a time. */
  private static final int SENDS_AHEAD = Layout.ACK_INTERVAL;

  /** After an attempt in vain, how many operations are submitted before the next one. */
  private static final int PAUSE = 64;

  /** Made while there is memory. */
  private static final NcclException NO_MEMORY =
      new SystemErrorException("an operation failed for lack of Java heap", "allow more: -Xmx");

  /** The plans in the queue; null at an entry that {@link #tasks} describes. */
  private final @Nullable HostWork[] plans = new HostWork[CAPACITY];

  /** Everything else. Apart from the plans, which touch few cache lines so. */
  private final StreamTask[] tasks = new StreamTask[CAPACITY];

  /** Shows no more at a time than the outbox holds, and knows one more. */
  private final Lookahead lookahead = new Lookahead(2 * Layout.OUTBOX_SLOTS);

  private final SendsAhead sends = new SendsAhead(plans);

  /** Whether what was last seen behind a head needed nothing of that head; by the owner. */
  private boolean isIndependent;

  private long next;

  /** From which position on small operations are moved when they are submitted. */
  private long eagerFrom;

  private final Unfinished unfinished;
  private long failedAt;
  private volatile @Nullable NcclException error;

  /** Whose failure the error is; null if it is no communicator's. Written before it. */
  private @Nullable HostRank failed;

  /**
   * An empty queue.
   *
   * @param timeoutNanos how long it waits for a copy or fill of another stream that does not move;
   *     works have the deadline of their communicator
   */
  HostQueue(long timeoutNanos) {
    unfinished = new Unfinished(this, plans, tasks, timeoutNanos);
    for (int i = 0; i < CAPACITY; i++) {
      tasks[i] = new StreamTask();
    }
  }

  // ---- submitting, by one thread

  /** How many entries were submitted so far. */
  final long submitted() {
    return next;
  }

  final boolean isFull() {
    return next - head() >= CAPACITY;
  }

  /** Up to where a full queue must be driven for one more entry. */
  final long firstRoom() {
    return next - CAPACITY + 1;
  }

  /** The entry that is released next; there is room for it. */
  final StreamTask nextEntry() {
    return tasks[(int) next & CAPACITY - 1];
  }

  /** The next entry, made a launch of a graph; there is room for it. */
  final StreamTask graphTask(HostExecutableGraph graph, long launch, int bases) {
    StreamTask task = nextEntry();
    task.kind = StreamTask.GRAPH;
    task.graph = graph;
    task.generation = launch;
    task.begun = false;
    if (task.bases.length < bases) {
      task.bases = new long[bases];
    }
    return task;
  }

  /** Submits a plan; there is room for it. */
  final void enqueue(HostWork plan) {
    plans[(int) next & CAPACITY - 1] = plan;
    long position = release();
    if ((position & EAGER - 1) == 0 && position >= eagerFrom && isSmall(plan)) {
      moveSmall(position);
    }
  }

  /**
   * Moves small operations while more are submitted. Where each waits for the one before, that only
   * takes time: then it is not tried for a while.
   */
  private void moveSmall(long position) {
    if (tryOwn()) {
      try {
        HostWork first = plans[(int) ownedHead() & CAPACITY - 1];
        if (first != null && isSmall(first)) {
          int ignored = run(position);
        }
        long head = ownedHead();
        if (head < position && !lookahead.isShown(head + 1) && !sends.isAhead(head)) {
          eagerFrom = position + PAUSE;
        }
      } finally {
        disown();
      }
    }
  }

  private static boolean isSmall(HostWork plan) {
    HostRank rank = plan.rank;
    return plan.isCollective()
        ? plan.next == null && Lookahead.isSmall(plan, rank.collectives())
        : rank.lanes().isEager(plan) && !rank.spansHosts();
  }

  /**
   * Makes the next entry visible; returns the position up to which one must drive to see it done.
   */
  final long release() {
    show(++next);
    return next;
  }

  public final void throwIfFailed() {
    NcclException failure = error;
    if (failure != null) {
      // That knows who else has died since.
      HostRank of = failed;
      throw Failures.again(of == null ? failure : of.failure().orElse(failure));
    }
  }

  // ---- driving

  /** Whether everything before a position is done and did not fail. */
  boolean hasPassed(long position) {
    return head() >= position && failureUpTo(position) == null;
  }

  @Override
  public int run(long target, int patience) {
    // Who waits for an event may know its place before the submitter has published it.
    long tail = tail();
    long end = Math.min(target, tail);
    long head = ownedHead();
    while (head < end) {
      int index = (int) head & CAPACITY - 1;
      HostWork plan = plans[index];
      boolean isMet = plan != null && plan.isMet();
      if (tail - head > 1 && !(isMet && isBetween(head, plan)) && isAhead(head, plan)) {
        lookAhead(head, tail);
      }
      int result =
          plan == null
              ? stepTask(tasks[index], patience)
              : stepPlan(index, plan, isMet ? null : behind(plan, head, tail, end), patience);
      if (result != Step.DONE) {
        if (result == Step.BLOCKED && tail - head > 1) {
          lookAhead(head, tail);
        }
        return result;
      }
      advance(++head);
    }
    return Step.DONE;
  }

  /** Whether enough was shown ahead of the head, which only has to be finished. */
  private static boolean isBetween(long head, HostWork plan) {
    return (head & (plan.isCollective() ? AHEAD : SENDS_AHEAD) - 1) != 0;
  }

  /** Whether other hosts need its data: what can be sent together with it leaves with it. */
  private static boolean isSentToOthers(@Nullable HostWork plan) {
    return plan != null && plan.rank.spansHosts();
  }

  /** Whether peers were shown something before its turn, or might be now. */
  private boolean isAhead(long head, @Nullable HostWork plan) {
    return lookahead.isShown(head) || sends.isAhead(head) || isIndependent && isSentToOthers(plan);
  }

  /** Shows peers what they will need next, before its turn. */
  private void lookAhead(long head, long tail) {
    if (error != null) {
      return;
    }
    HostWork first = plans[(int) head & CAPACITY - 1];
    if (first != null && !first.isCollective()) {
      sends.advance(head, tail);
      return;
    }
    while (lookahead.advance(head)) {
      long entry = lookahead.next(head);
      if (entry >= tail) {
        break;
      }
      HostWork plan = plans[(int) entry & CAPACITY - 1];
      if (plan == null || plan.next != null || !plan.isCollective()) {
        lookahead.addOther(entry);
      } else {
        lookahead.add(entry, head, plan, plan.rank.collectives());
      }
    }
    lookahead.look(head);
    if (lookahead.next(head) > head + 1) {
      isIndependent = lookahead.isFree(head + 1, head);
    }
  }

  /**
   * The first work of the plan after the one at the head if both are collectives, or both messages,
   * of one rank, else null; where there are other hosts, only if it lies before {@code end}, where
   * this run ends. Groups of collectives count as something else.
   */
  private @Nullable HostWork behind(HostWork plan, long head, long tail, long end) {
    if (head + 1 >= (isSentToOthers(plan) ? end : tail)) {
      return null;
    }
    HostWork next = plans[(int) (head + 1) & CAPACITY - 1];
    boolean isAlone = next != null && (next.next == null || !next.isCollective());
    return isAlone && isLike(next, plan) ? next : null;
  }

  /** Whether both are collectives, or both messages, of one rank. */
  private static boolean isLike(HostWork one, HostWork other) {
    return one.rank == other.rank && one.isCollective() == other.isCollective();
  }

  private int stepPlan(int index, HostWork plan, @Nullable HostWork behind, int patience) {
    if (plan.next == null) {
      int result = step(plan, behind, patience);
      if (result == Step.DONE) {
        plans[index] = null;
        retire(plan);
      }
      return result;
    }
    HostWork work = plan;
    HostWork previous = null;
    int result = Step.BLOCKED;
    while (work != null) {
      HostWork following = (HostWork) work.next;
      // The plan behind this one has its turn at once only if all of this is done.
      HostWork last = previous == null ? behind : null;
      HostWork then = following == null ? last : following;
      boolean isFollowed = !work.isCollective() && then != null && isLike(then, work);
      int one = step(work, isFollowed ? then : null, 0);
      if (one == Step.DONE) {
        if (previous == null) {
          plans[index] = following;
        } else {
          previous.next = following;
        }
        retire(work);
        result = Step.MOVED;
      } else {
        previous = work;
        result = result == Step.MOVED ? result : one == Step.BLOCKED ? result : one;
      }
      work = following;
    }
    return plans[index] == null ? Step.DONE : result;
  }

  /** Gives the work's place in the FIFO back; nothing of it may be touched afterwards. */
  private static void retire(HostWork work) {
    HostRank rank = work.rank;
    work.free();
    if (!rank.isHealthy()) {
      rank.becomeQuietIfIdle();
    }
  }

  @Nullable NcclException error() {
    return error;
  }

  /** Fails this queue from its head on; the first failure counts. By the owner. */
  void failWith(@Nullable NcclException cause) {
    if (error == null && cause != null) {
      failedAt = ownedHead();
      error = cause;
    }
  }

  /** Why what lies before a position failed; null if it did not. Any thread. */
  @Nullable NcclException failureUpTo(long position) {
    NcclException e = error;
    return e != null && failedAt < position ? e : null;
  }

  /**
   * Takes a step of one work, and turns what it throws into this stream's failure.
   *
   * @param behind what follows it if both are collectives, or both messages, of one rank; else null
   */
  int step(HostWork work, @Nullable HostWork behind, int patience) {
    HostRank rank = work.rank;
    if (error == null && rank.isHealthy()) {
      try {
        int result =
            work.isCollective()
                ? rank.collectives().step(work, behind, patience)
                : rank.stepMessage(work, behind, patience);
        if (result == Step.BLOCKED) {
          work.timesBlocked++;
        }
        if (result != Step.DONE) {
          rank.flush();
        }
        return result;
      } catch (NcclException e) {
        rank.health().fail(e);
      } catch (RuntimeException | Error e) {
        rank.health().fail(failureOf(work, e));
      }
    }
    drop(work);
    return Step.DONE;
  }

  /** There is always one: a work whose step was broken off must not be stepped again. */
  private static NcclException failureOf(HostWork work, Throwable cause) {
    try {
      if (cause instanceof OutOfMemoryError) {
        return new SystemErrorException(
                work.describe() + " failed for lack of Java heap", "allow more: -Xmx")
            .causedBy(cause);
      }
      return cause instanceof IllegalStateException
          ? new InvalidUsageException(
                  work.describe()
                      + ": memory was closed while it was in use: "
                      + cause.getMessage(),
                  "keep wrapped segments open until the operation is complete")
              .causedBy(cause)
          : new InternalErrorException(work.describe() + " failed: " + cause, "please report this")
              .causedBy(cause);
    } catch (OutOfMemoryError e) {
      return NO_MEMORY;
    }
  }

  /** Fails this stream, so that all that is queued is dropped as soon as it is driven. */
  void giveUp(NcclException reason) {
    while (!tryOwn()) {
      want();
      Thread.yield();
    }
    try {
      failWith(reason);
    } finally {
      disown();
    }
  }

  private void drop(HostWork work) {
    HostRank rank = work.rank;
    NcclException earlier = error;
    if (rank.isHealthy() && earlier != null) {
      rank.health()
          .fail(
              new AbortedException(
                      work.describe()
                          + " was dropped, because an earlier work of its stream failed: "
                          + earlier.problem(),
                      "create a new communicator and stream",
                      List.of(rank.rank()))
                  .causedBy(earlier),
              RankState.DROPPED,
              rank.rank(),
              work.seq);
    }
    if (error == null) {
      failed = rank;
    }
    rank.told();
    failWith(rank.health().failure());
    work.broken();
    work.abandon();
  }

  private int stepTask(StreamTask task, int patience) {
    int result = carryOut(task, patience);
    if (result == Step.DONE) {
      task.clear();
    }
    return result;
  }

  private int carryOut(StreamTask task, int patience) {
    try {
      switch (task.kind) {
        case StreamTask.COPY, StreamTask.FILL -> {
          if (error == null && !task.movePart()) {
            return Step.MOVED;
          }
        }
        case StreamTask.GRAPH -> {
          return Objects.requireNonNull(task.graph).step(this, task, patience);
        }
        case StreamTask.RECORD ->
            Objects.requireNonNull(task.event).complete(task.generation, error);
        default -> {
          HostQueue awaited = Objects.requireNonNull(task.awaited);
          // Who has failed waits for nothing: what follows is dropped.
          if (error == null && awaited.head() < task.generation) {
            return Step.DEPENDS;
          }
          failWith(awaited.failureUpTo(task.generation));
        }
      }
    } catch (IllegalStateException e) {
      memoryWasClosed(e);
    }
    return Step.DONE;
  }

  /** Fails this stream because a copy or fill cannot use its memory any more. */
  void memoryWasClosed(IllegalStateException cause) {
    failWith(
        new InvalidUsageException(
                "memory was closed while a copy or fill used it: " + cause.getMessage(),
                "keep wrapped segments open until the stream is synchronized")
            .causedBy(cause));
  }

  // ---- slow paths

  @Override
  public void checkFaults() {
    unfinished.checkFaults();
  }

  @Override
  public void checkDeadline(long now) {
    unfinished.checkDeadline(now);
  }

  @Override
  public void checkPlacement(long now) {
    unfinished.checkPlacement(now);
  }

  @Override
  public String describeHead() {
    return unfinished.describeHead();
  }

  @Override
  public void addUses(Object buffer, Uses uses) {
    unfinished.addUses(buffer, uses);
  }

  /** What is not complete. */
  final Unfinished unfinished() {
    return unfinished;
  }

  /**
   * Fails what is queued, and drops it.
   *
   * @param timeoutNanos how long at most, where other streams must move first
   * @return whether the queue is empty
   */
  boolean giveUp(long timeoutNanos) {
    long start = System.nanoTime();
    boolean isGivenUp = false;
    while (hasPending()) {
      if (tryOwn()) {
        try {
          if (!isGivenUp) {
            unfinished.giveUpHead();
            isGivenUp = true;
          }
          int ignored = run(tail());
        } finally {
          disown();
        }
      } else {
        want();
      }
      if (System.nanoTime() - start > timeoutNanos) {
        return !hasPending();
      }
      Progress.helpAll("what is queued in a stream that is closed");
    }
    return true;
  }
}
