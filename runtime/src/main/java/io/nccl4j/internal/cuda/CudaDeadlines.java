package io.nccl4j.internal.cuda;

import io.nccl4j.DeadlineException;
import io.nccl4j.InternalErrorException;
import io.nccl4j.InterruptedWaitException;
import io.nccl4j.NcclException;
import io.nccl4j.internal.schedule.Padded;
import io.nccl4j.internal.spi.Interrupts;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * The deadline of a communicator's operations: who waits asks here whether it has passed, and is
 * told what was waited for. A call of NCCL that does not return is looked after by {@link
 * CallWatch}.
 */
final class CudaDeadlines extends Padded {
  /** A call that lasts so long waits for others: those that do not take some microseconds. */
  private static final int TICKS_TO_STUCK = 8;

  private final CudaCommunicator communicator;
  private final Team team;
  private final CudaHealth health;
  private final long timeoutNanos;
  private volatile @Nullable CudaWork calling;
  private volatile long callTick;

  /** Written before the tick. */
  private @Nullable Thread caller;

  CudaDeadlines(CudaCommunicator communicator, Team team, CudaHealth health) {
    this.communicator = communicator;
    this.team = team;
    this.health = health;
    this.timeoutNanos = communicator.config().operationTimeout().toNanos();
  }

  private String timeout() {
    return communicator.config().operationTimeout().toMillis() + " ms";
  }

  // ---- calls that do not return

  /** This thread is about to call NCCL for a work. */
  void callBegins(CudaWork work) {
    calling = work;
    caller = Thread.currentThread();
    callTick = CallWatch.now();
  }

  void callEnds() {
    callTick = 0;
    caller = null;
    calling = null;
  }

  /** Looks after a call that has not returned for a while; for the watch. */
  void checkCall() {
    long begun = callTick;
    CudaWork work = calling;
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
    NcclException e = team.contradiction(communicator);
    if (e == null && ticks * CallWatch.TICK_NANOS > timeoutNanos) {
      e =
          new DeadlineException(
              "not started after " + timeout() + ": " + explain(work),
              "check the other ranks; a thread that drives several ranks must issue their"
                  + " operations in one group",
              absent(work));
    }
    if (e != null) {
      health.fail(e);
    }
  }

  /** Nobody would notice a call that does not return. */
  void cannotBeWatched(Throwable cause) {
    health.fail(
        new InternalErrorException(
                "NCCL's calls cannot be watched: " + cause, "restart the process")
            .causedBy(cause));
  }

  // ---- works and graphs that do not end

  /** Fails when a work has been waited for longer than operations may take. */
  void check(CudaWork work, long waitedNanos) {
    if (waitedNanos > timeoutNanos && health.failure() == null) {
      health.fail(
          new DeadlineException(
              "not complete after " + timeout() + ": " + explain(work),
              "check the ranks named; operation-timeout sets the deadline",
              absent(work)));
    }
  }

  /** The same for a graph, of which only the whole is known. */
  void checkGraph(long waitedNanos) {
    if (waitedNanos > timeoutNanos && health.failure() == null) {
      health.fail(
          new DeadlineException(
              "not complete after "
                  + timeout()
                  + ": a graph of communicator "
                  + communicator.name()
                  + (explainGraph().isEmpty() ? "" : ", whose " + explainGraph())
                  + backlog(),
              "make sure that all ranks launch the same graphs or operations"));
    }
  }

  /** The first collective that others here have not called, and who they are; or nothing. */
  String explainGraph() {
    CudaLedger ledger = communicator.ledger();
    long first = team.reachedByAll(communicator) + 1;
    return first > ledger.collectives()
        ? ""
        : ledger.describe(first)
            + " #"
            + first
            + " is waiting for "
            + team.absent(communicator, first);
  }

  private List<Integer> absent(CudaWork work) {
    return work.isCollective() ? team.absentRanks(communicator, work.seq) : List.of();
  }

  String explain(CudaWork work) {
    return work.describe() + " is waiting for " + team.missing(communicator, work) + backlog();
  }

  private String backlog() {
    CudaWork oldest = communicator.fifo().oldestInUse();
    return "; "
        + communicator.fifo().inUse()
        + " of "
        + communicator.fifo().capacity()
        + " works of this rank's FIFO are unfinished"
        + (oldest == null ? "" : ", the oldest is " + oldest.describe());
  }
}
