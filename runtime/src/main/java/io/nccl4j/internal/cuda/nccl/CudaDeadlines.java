package io.nccl4j.internal.cuda.nccl;

import io.nccl4j.DeadlineException;
import io.nccl4j.InternalErrorException;
import io.nccl4j.InterruptedWaitException;
import io.nccl4j.NcclException;
import io.nccl4j.internal.cuda.driver.Gpu;
import io.nccl4j.internal.schedule.Padded;
import io.nccl4j.internal.schedule.Work;
import io.nccl4j.internal.spi.Interrupts;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * The deadline of a communicator's operations: who waits asks here whether it has passed, and is
 * told what was waited for. A call of NCCL that does not return is looked after by {@link
 * CallWatch}.
 */
public final class CudaDeadlines extends Padded {
  /** A call that lasts so long waits for others: those that do not take some microseconds. */
  private static final int TICKS_TO_STUCK = 8;

  /** Between two looks for faults of an idle communicator. */
  private static final int TICKS_TO_LOOK = 16;

  private final NcclRank rank;
  private final Team team;
  private final CudaHealth health;
  private final long timeoutNanos;
  private final boolean looksAlways;

  private static final VarHandle CALL_TICK;

  static {
    try {
      CALL_TICK = MethodHandles.lookup().findVarHandle(CudaDeadlines.class, "callTick", long.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  /** When the present call began, 0 if none is under way. */
  @SuppressWarnings("unused") // by VarHandle
  private long callTick;

  // The last call's, written before the tick: no fence waits for what NCCL has just written.
  private @Nullable Work calling;
  private @Nullable Thread caller;

  /**
   * The deadline of a rank's operations.
   *
   * @param looksAlways whether faults are to be noticed while nobody waits
   */
  CudaDeadlines(NcclRank rank, Team team, CudaHealth health, boolean looksAlways) {
    this.rank = rank;
    this.team = team;
    this.health = health;
    this.timeoutNanos = rank.config().operationTimeout().toNanos();
    this.looksAlways = looksAlways;
  }

  // ---- calls that do not return

  /** Starts watching for calls that do not return. */
  public void watch() {
    CallWatch.add(this);
  }

  /** Ends {@link #watch()}. */
  public void unwatch() {
    CallWatch.remove(this);
  }

  /** Fails every open rank on a GPU whose context is lost. */
  public static void deviceLost(Gpu gpu, NcclException cause) {
    CallWatch.watched(
        calls -> {
          if (calls.rank.memory().gpu() == gpu) {
            calls.health.fail(cause);
          }
        });
  }

  /** Ranks of the communicator that are known to be on this machine, this one included. */
  int ranksHere() {
    return team.ranksHere();
  }

  /** This thread is about to call NCCL for a work. */
  public void callBegins(Work work) {
    Thread thread = Thread.currentThread();
    if (caller != thread) {
      caller = thread;
    }
    calling = work;
    CALL_TICK.setRelease(this, CallWatch.now());
  }

  public void callEnds() {
    CALL_TICK.setRelease(this, 0L);
  }

  /** Looks after a call that has not returned for a while; for the watch. */
  void checkCall() {
    team.publish(rank);
    if (looksAlways && CallWatch.now() % TICKS_TO_LOOK == 0) {
      health.look();
    }
    long begun = (long) CALL_TICK.getAcquire(this);
    Work work = calling;
    long ticks = CallWatch.now() - begun;
    Thread thread = caller;
    if (begun == 0 || work == null || ticks < TICKS_TO_STUCK || health.failure() != null) {
      return;
    }
    if (thread != null && thread.isInterrupted()) {
      health.failInCall(
          Interrupts.asFailure(
              new InterruptedWaitException(
                  "interrupted in a call of NCCL, which is given up: " + explain(work), "")));
      return;
    }
    NcclException e = team.contradiction(rank);
    if (e == null && ticks * CallWatch.TICK_NANOS > timeoutNanos) {
      e = late(work, false);
    }
    if (e != null) {
      health.fail(e);
    }
  }

  /** Fails the communicator, because a call that does not return would go unnoticed. */
  void cannotBeWatched(Throwable cause) {
    health.fail(
        new InternalErrorException(
                "NCCL's calls cannot be watched: " + cause, "restart the process")
            .causedBy(cause));
  }

  // ---- works and graphs that do not end

  /** Fails when a work has been waited for longer than operations may take. */
  public void check(Work work, long waitedNanos) {
    work.waiting();
    if (waitedNanos > timeoutNanos && health.failure() == null) {
      health.fail(late(work, true));
    }
  }

  private DeadlineException late(Work work, boolean started) {
    String missing = team.missing(rank, work);
    return rank.wording().late(work, started, timeoutNanos, missing, absent(work));
  }

  /** The same for a graph, of which only the whole is known. */
  public void checkGraph(long waitedNanos) {
    if (waitedNanos > timeoutNanos && health.failure() == null) {
      health.fail(
          new DeadlineException(
              "not complete after "
                  + timeoutNanos / 1_000_000
                  + " ms: a graph of communicator "
                  + rank.name()
                  + (explainGraph().isEmpty() ? "" : ", whose " + explainGraph())
                  + rank.wording().backlog(),
              "make sure that all ranks launch the same graphs or operations"));
    }
  }

  /** The first collective that others here have not called, and who they are; or nothing. */
  public String explainGraph() {
    CudaLedger ledger = rank.ledger();
    long first = team.reachedByAll(rank) + 1;
    return first > ledger.collectives()
        ? ""
        : ledger.describe(first) + " #" + first + " is waiting for " + team.absent(rank, first);
  }

  private List<Integer> absent(Work work) {
    return work.isCollective() ? team.absentRanks(rank, work.seq) : List.of();
  }

  /** What a work waits for, in words. */
  public String missing(Work work) {
    return team.missing(rank, work);
  }

  public String explain(Work work) {
    return work.describe()
        + " is waiting for "
        + team.missing(rank, work)
        + rank.wording().backlog();
  }
}
