package io.nccl4j.internal.host.layout;

import io.nccl4j.internal.operation.Operation;
import io.nccl4j.internal.operation.Signature;
import io.nccl4j.internal.schedule.Padded;
import io.nccl4j.internal.schedule.Work;
import java.lang.invoke.VarHandle;
import org.jspecify.annotations.Nullable;

/**
 * What each rank of a communicator has called last, readable by every other rank even after the
 * writer's death. Calls are written at submission by their owner and read only to explain.
 */
public final class Ledger extends Padded {
  private static final int COLLECTIVES = Layout.LEDGER_COLLECTIVES;
  private static final int MESSAGES = Layout.LEDGER_MESSAGES;
  private static final int CALL_LONGS = 2;

  /** How far back collectives can be read: others may be written over at this moment. */
  private static final int READABLE = COLLECTIVES - Layout.LEDGER_RUN;

  /**
   * One call.
   *
   * @param seq its number in the communicator or lane
   * @param code see {@link Signature#code}
   * @param count elements
   */
  public record Call(long seq, long code, long count) {
    private Operation operation() {
      return Signature.operation(code);
    }

    /** Whether all ranks pass the counts of all. */
    public boolean hasCommonCounts() {
      return operation().hasCommonCounts();
    }

    /** See {@link Signature#agree}. */
    public boolean agrees(Call other) {
      return Signature.agree(code, count, other.code, other.count);
    }
  }

  private final ControlBlock control;
  private final long own;
  private long messages;

  public Ledger(ControlBlock control, int rank) {
    this.control = control;
    this.own = control.ledger(rank);
  }

  // ---- writing, by the submitting thread

  /** Notes a collective. */
  public void collective(Work work, long seq) {
    long place = own + Layout.CALLS + (seq & COLLECTIVES - 1) * Layout.CALL_BYTES;
    control.setPlain(place + Layout.CALL_CODE, work.code());
    control.setPlain(place + Layout.CALL_COUNT, work.count);
    control.setRelease(own + Layout.LAST, seq);
  }

  /**
   * Notes the collectives of a graph.
   *
   * @param calls their codes and counts in turn
   * @param before number of the collective before
   * @return the number of the last one
   */
  public long collectives(long[] calls, long before) {
    int count = calls.length / CALL_LONGS;
    for (int done = 0; done < count; ) {
      int place = (int) (before + 1 + done) & COLLECTIVES - 1;
      int part = Math.min(Math.min(count - done, Layout.LEDGER_RUN), COLLECTIVES - place);
      control.setPlain(
          own + Layout.CALLS + place * Layout.CALL_BYTES,
          calls,
          CALL_LONGS * done,
          CALL_LONGS * part);
      done += part;
      control.setRelease(own + Layout.LAST, before + done);
    }
    return before + count;
  }

  /** Notes a send or receive. */
  public void message(Work work, long seq) {
    long place = own + Layout.MESSAGES + (messages++ & MESSAGES - 1) * Layout.MESSAGE_CALL_BYTES;
    control.setPlain(place + Layout.MESSAGE_CODE, work.code());
    control.setPlain(place + Layout.MESSAGE_COUNT, work.count);
    control.setRelease(place + Layout.MESSAGE_SEQ, seq);
  }

  // ---- reading

  /** The number of a rank's last collective; 0 if it called none. */
  public long lastCollective(int rank) {
    return control.getAcquire(control.ledger(rank) + Layout.LAST);
  }

  /**
   * A rank's collective, by the low 32 bits of its number; null if it is not (or no longer) there.
   */
  public @Nullable Call findCollective(int rank, long seq) {
    long last = lastCollective(rank);
    int back = (int) last - (int) seq;
    long number = last - back;
    if (back < 0 || back >= READABLE || number <= 0) {
      return null;
    }
    long place =
        control.ledger(rank) + Layout.CALLS + (number & COLLECTIVES - 1) * Layout.CALL_BYTES;
    Call call =
        new Call(
            number,
            control.getPlain(place + Layout.CALL_CODE),
            control.getPlain(place + Layout.CALL_COUNT));
    VarHandle.loadLoadFence();
    boolean whole = lastCollective(rank) - number < READABLE;
    return whole && Signature.isCode(call.code) ? call : null;
  }

  /** Notes the collective of a rank that cannot write here, if it is one. */
  void mirror(int rank, Call call) {
    if (Signature.isCode(call.code)) {
      long place =
          control.ledger(rank) + Layout.CALLS + (call.seq & COLLECTIVES - 1) * Layout.CALL_BYTES;
      control.setPlain(place + Layout.CALL_CODE, call.code);
      control.setPlain(place + Layout.CALL_COUNT, call.count);
    }
  }

  /** A rank's send to, or receive from, a peer; null if it is not (or no longer) there. */
  public @Nullable Call findMessage(int rank, Operation operation, int peer, long seq) {
    for (int i = 0; i < MESSAGES; i++) {
      long place = control.ledger(rank) + Layout.MESSAGES + i * Layout.MESSAGE_CALL_BYTES;
      long number = control.getAcquire(place + Layout.MESSAGE_SEQ);
      long code = control.getPlain(place + Layout.MESSAGE_CODE);
      if (number != 0
          && (int) number == (int) seq
          && Signature.isCode(code)
          && Signature.operation(code) == operation
          && (int) (code >>> 32) == peer) {
        return new Call(number, code, control.getPlain(place + Layout.MESSAGE_COUNT));
      }
    }
    return null;
  }

  /** A call in words. */
  public static String describe(@Nullable Call call) {
    return call == null
        ? "an operation that is no longer recorded (only the last "
            + READABLE
            + " collectives and "
            + MESSAGES
            + " messages of a rank are)"
        : Signature.describe(call.code, call.count);
  }
}
