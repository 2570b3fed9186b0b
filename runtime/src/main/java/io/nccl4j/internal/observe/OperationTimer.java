package io.nccl4j.internal.observe;

import io.nccl4j.internal.observe.Recorder.OperationEvent;
import org.jspecify.annotations.Nullable;

/**
 * The clock of one operation that somebody observes: when it was submitted, could be carried out,
 * and has ended. It belongs to the operation's place in the FIFO and is used again, so that timing
 * allocates nothing once each place was used.
 *
 * <p>Begun by the submitting thread; the rest by whoever drives the operation.
 */
public final class OperationTimer {
  private static final long UNKNOWN = Long.MIN_VALUE;

  private final Observed operation;
  private @Nullable OperationEvent collective;
  private @Nullable OperationEvent message;

  /** Null if no event is wanted. */
  private @Nullable OperationEvent event;

  /** Null while it stands. */
  private @Nullable OperationTally tally;

  private long submitted;
  private long waited;
  private boolean isBroken;

  /** A clock that stands. */
  public OperationTimer(Observed operation) {
    this.operation = operation;
  }

  /**
   * The operation is submitted now.
   *
   * @param newTally counts it when it ends
   */
  public void begin(OperationTally newTally) {
    tally = newTally;
    isBroken = false;
    waited = UNKNOWN;
    event = wantedEvent();
    if (event != null) {
      event.submitted();
    }
    submitted = System.nanoTime();
  }

  private @Nullable OperationEvent wantedEvent() {
    boolean isCollective = operation.isCollective();
    if (!Recorder.HERE.wants(isCollective)) {
      return null;
    }
    OperationEvent known = isCollective ? collective : message;
    if (known == null) {
      known = Recorder.HERE.newOperation(isCollective);
      if (isCollective) {
        collective = known;
      } else {
        message = known;
      }
    }
    return known;
  }

  /** It can be carried out from now on: all that it waited for is there. */
  public void met() {
    if (tally != null && waited == UNKNOWN) {
      waited = System.nanoTime() - submitted;
    }
  }

  /** It will not succeed. */
  public void broken() {
    isBroken = true;
  }

  /** It has ended, if it ever began. */
  public void end() {
    OperationTally running = tally;
    if (running == null) {
      return;
    }
    tally = null;
    long time = System.nanoTime() - submitted;
    if (!isBroken) {
      running.time(operation.kind(), time, waited);
    }
    if (event != null) {
      event.ended(operation, time, waited, !isBroken);
    }
  }
}
