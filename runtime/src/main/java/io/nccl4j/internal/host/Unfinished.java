package io.nccl4j.internal.host;

import io.nccl4j.DeadlineException;
import io.nccl4j.internal.memory.Uses;
import io.nccl4j.internal.schedule.Wording;
import java.time.Duration;
import java.util.Collections;
import java.util.List;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * The tasks of a queue that are not complete: whether one has failed or takes too long, what they
 * wait for, and which memory they use. None of this is on the hot path.
 */
final class Unfinished {
  private static final PendingAction FAULTS = (work, now) -> work.rank.health().check(work);
  private static final PendingAction DEADLINE =
      (work, now) -> work.rank.health().checkDeadline(work, now);
  private static final PendingAction PLACEMENT =
      (work, now) -> work.rank.placement().check(work, now);

  private static final PendingAction GIVE_UP =
      (work, now) ->
          work.rank.closeEarly(
              work.describe()
                  + " was unfinished when its stream was closed, waiting for "
                  + work.rank.explanation().missing(work));

  /** What is done with works that wait. Constants, because waiting shall not allocate either. */
  interface PendingAction {
    void apply(HostWork work, long now);
  }

  private final HostQueue queue;
  private final @Nullable HostWork[] plans;
  private final StreamTask[] tasks;
  private final long timeoutNanos;

  /**
   * Looks after the tasks of a queue.
   *
   * @param plans the queue's entries that are works; null where the entry is one of {@code tasks}
   * @param timeoutNanos how long the queue waits for a copy or fill of another stream that makes no
   *     progress; works have the deadlines of their communicators
   */
  Unfinished(HostQueue queue, @Nullable HostWork[] plans, StreamTask[] tasks, long timeoutNanos) {
    this.queue = queue;
    this.plans = plans;
    this.tasks = tasks;
    this.timeoutNanos = timeoutNanos;
  }

  void checkFaults() {
    forEachPending(FAULTS, 0);
  }

  void checkDeadline(long now) {
    forEachPending(DEADLINE, now);
    StreamTask task = waitAtHead();
    if (task != null) {
      checkAwaited(task, Objects.requireNonNull(task.awaited), now);
    }
  }

  /** The entry at the head if it waits for an event. */
  private @Nullable StreamTask waitAtHead() {
    long head = queue.head();
    int index = (int) head & plans.length - 1;
    return head != queue.tail() && plans[index] == null && tasks[index].kind == StreamTask.WAIT
        ? tasks[index]
        : null;
  }

  /**
   * Checks the deadlines of a stream that is waited for, because perhaps nobody drives it. Works
   * and waits of that stream have deadlines of their own; copies and fills get them here.
   */
  private void checkAwaited(StreamTask task, HostQueue awaited, long now) {
    boolean isIdle = awaited.tryOwn();
    if (isIdle) {
      try {
        awaited.checkFaults();
        awaited.checkDeadline(now);
      } finally {
        awaited.disown();
      }
    }
    long head = awaited.head();
    if (isIdle || task.seenSince == 0 || task.seen != head) {
      task.seen = head;
      task.seenSince = now;
    } else if (now - task.seenSince > timeoutNanos) {
      queue.failWith(
          new DeadlineException(
              "not complete after " + timeoutNanos / 1_000_000 + " ms: " + describe(task, awaited),
              "check whether the thread that runs that stream hangs; operation-timeout sets the"
                  + " deadline"));
    }
  }

  private static String describe(StreamTask wait, HostQueue awaited) {
    return "waiting for an event of another stream, "
        + (awaited.head() >= wait.generation
            ? "which is complete"
            : "where it lies behind: " + awaited.describeHead());
  }

  void checkPlacement(long now) {
    forEachPending(PLACEMENT, now);
  }

  private void forEachPending(PendingAction action, long now) {
    long head = queue.head();
    if (head == queue.tail()) {
      return;
    }
    int index = (int) head & plans.length - 1;
    HostExecutableGraph graph = tasks[index].graph;
    if (graph != null && tasks[index].begun) {
      graph.forEachPending(action, now);
    }
    for (HostWork work = plans[index]; work != null; work = (HostWork) work.next) {
      action.apply(work, now);
    }
  }

  String describeHead() {
    long head = queue.head();
    if (head == queue.tail()) {
      return "nothing is queued";
    }
    StreamTask task = tasks[(int) head & plans.length - 1];
    HostWork work = plans[(int) head & plans.length - 1];
    HostExecutableGraph graph = task.graph;
    if (graph != null) {
      work = task.begun ? graph.firstPending() : null;
      if (work == null) {
        return "a graph";
      }
    }
    if (work == null) {
      HostQueue awaited = task.awaited;
      return task.kind == StreamTask.WAIT && awaited != null
          ? describe(task, awaited)
          : "a copy, fill or event";
    }
    return work.describe() + " is waiting for " + work.rank.explanation().missing(work);
  }

  /** Whether a work is queued here; for messages, see {@link #describeHead}. */
  boolean holds(HostWork work) {
    for (long i = queue.head(); i < queue.tail(); i++) {
      HostWork queued = plans[(int) i & plans.length - 1];
      while (queued != null && queued != work) {
        queued = (HostWork) queued.next;
      }
      if (queued != null) {
        return true;
      }
    }
    return false;
  }

  /**
   * Returns the longest close timeout of the communicators that have works or graphs in the queue.
   *
   * @param otherwise what to return if none has
   */
  Duration closeTimeout(Duration otherwise) {
    Duration longest = Duration.ZERO;
    for (long i = queue.head(); i < queue.tail(); i++) {
      int index = (int) i & plans.length - 1;
      for (HostWork work = plans[index]; work != null; work = (HostWork) work.next) {
        longest = Collections.max(List.of(longest, work.rank.config().closeTimeout()));
      }
      HostExecutableGraph graph = tasks[index].graph;
      if (graph != null) {
        longest = Collections.max(List.of(longest, graph.closeTimeout(otherwise)));
      }
    }
    return longest.isZero() ? otherwise : longest;
  }

  /** Adds the unfinished copies and fills that use a buffer. */
  void addUses(Object buffer, Uses uses) {
    long last = 0;
    for (long i = queue.head(); i < queue.tail(); i++) {
      if (tasks[(int) i & plans.length - 1].uses(buffer)) {
        last = i + 1;
      }
    }
    long end = last;
    if (end > 0) {
      uses.add(() -> queue.head() >= end);
    }
  }

  /** Fails the queue, and says what it was waiting for, before it is given up. */
  void giveUpHead() {
    forEachPending(GIVE_UP, 0);
    long head = queue.head();
    HostExecutableGraph graph =
        head == queue.tail() ? null : tasks[(int) head & plans.length - 1].graph;
    if (graph != null) {
      graph.giveUp("a graph was unfinished when its stream was closed: " + describeHead());
    }
    queue.failWith(
        Wording.closedEarly("the stream was closed with unfinished work: " + describeHead()));
  }
}
