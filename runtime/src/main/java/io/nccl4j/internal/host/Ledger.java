package io.nccl4j.internal.host;

import io.nccl4j.internal.operation.Operation;
import io.nccl4j.internal.operation.Signature;
import io.nccl4j.internal.schedule.Padded;
import java.lang.invoke.VarHandle;
import org.jspecify.annotations.Nullable;

/**
 * What each rank of a communicator has called last, readable by every other rank even after the
 * writer's death. Calls are written at submission by their owner and read only to explain.
 *
 * <pre>
 * number of the last collective                                 128 B
 * collectives  {@value #COLLECTIVES} calls of 16 B: code, count; the place is the number's
 * messages     {@value #MESSAGES} calls of 32 B: number in the lane, code, count; in order of calls
 * </pre>
 */
final class Ledger extends Padded {
  private static final int COLLECTIVES = 1024;
  private static final int CALL_BYTES = 16;
  private static final int CALL_LONGS = 2;

  /** Collectives of a graph that are written before their numbers are shown. */
  private static final int RUN = 256;

  /** How far back collectives can be read: others may be written over at this moment. */
  static final int READABLE = COLLECTIVES - RUN;

  private static final int MESSAGES = 512;
  private static final int MESSAGE_BYTES = 32;

  private static final long LAST = 0;
  private static final long CALLS = ControlBlock.LINE;
  private static final long LANES = CALLS + (long) COLLECTIVES * CALL_BYTES;

  /** Bytes of one rank. */
  static final long BYTES = LANES + (long) MESSAGES * MESSAGE_BYTES;

  /**
   * One call.
   *
   * @param seq its number in the communicator or lane
   * @param code see {@link Signature#code}
   * @param count elements
   */
  record Call(long seq, long code, long count) {
    private Operation operation() {
      return Signature.operation(code);
    }

    /** Whether all ranks pass the counts of all. */
    boolean hasCommonCounts() {
      return operation().hasCommonCounts();
    }

    /**
     * Whether two ranks' calls can be the same collective; the counts of v-forms differ from rank
     * to rank.
     */
    boolean agrees(Call other) {
      return code == other.code && (operation().varies() || count == other.count);
    }
  }

  private final ControlBlock control;
  private final long own;
  private long messages;

  Ledger(ControlBlock control, int rank) {
    this.control = control;
    this.own = control.ledger(rank);
  }

  // ---- writing, by the submitting thread

  /** Notes a collective. */
  void collective(HostWork work, long seq) {
    long place = own + CALLS + (seq & COLLECTIVES - 1) * CALL_BYTES;
    control.setPlain(place, work.code());
    control.setPlain(place + Long.BYTES, work.count);
    control.setRelease(own + LAST, seq);
  }

  /**
   * Notes the collectives of a graph.
   *
   * @param calls their codes and counts in turn
   * @param before number of the collective before
   * @return the number of the last one
   */
  long collectives(long[] calls, long before) {
    int count = calls.length / CALL_LONGS;
    for (int done = 0; done < count; ) {
      int place = (int) (before + 1 + done) & COLLECTIVES - 1;
      int part = Math.min(Math.min(count - done, RUN), COLLECTIVES - place);
      control.setPlain(
          own + CALLS + (long) place * CALL_BYTES, calls, CALL_LONGS * done, CALL_LONGS * part);
      done += part;
      control.setRelease(own + LAST, before + done);
    }
    return before + count;
  }

  /** Notes a send or receive. */
  void message(HostWork work, long seq) {
    long place = own + LANES + (messages++ & MESSAGES - 1) * MESSAGE_BYTES;
    control.setPlain(place + Long.BYTES, work.code());
    control.setPlain(place + 2 * Long.BYTES, work.count);
    control.setRelease(place, seq);
  }

  // ---- reading

  /** The number of a rank's last collective; 0 if it called none. */
  long lastCollective(int rank) {
    return control.getAcquire(control.ledger(rank) + LAST);
  }

  /**
   * A rank's collective, by the low 32 bits of its number; null if it is not (or no longer) there.
   */
  @Nullable Call findCollective(int rank, long seq) {
    long last = lastCollective(rank);
    int back = (int) last - (int) seq;
    long number = last - back;
    if (back < 0 || back >= READABLE || number <= 0) {
      return null;
    }
    long place = control.ledger(rank) + CALLS + (number & COLLECTIVES - 1) * CALL_BYTES;
    Call call = new Call(number, control.getPlain(place), control.getPlain(place + Long.BYTES));
    VarHandle.loadLoadFence();
    boolean whole = lastCollective(rank) - number < READABLE;
    return whole && Signature.isCode(call.code) ? call : null;
  }

  /** A rank's send to, or receive from, a peer; null if it is not (or no longer) there. */
  @Nullable Call findMessage(int rank, Operation operation, int peer, long seq) {
    for (int i = 0; i < MESSAGES; i++) {
      long place = control.ledger(rank) + LANES + (long) i * MESSAGE_BYTES;
      long number = control.getAcquire(place);
      long code = control.getPlain(place + Long.BYTES);
      if (number != 0
          && (int) number == (int) seq
          && Signature.isCode(code)
          && Signature.operation(code) == operation
          && (int) (code >>> 32) == peer) {
        return new Call(number, code, control.getPlain(place + 2 * Long.BYTES));
      }
    }
    return null;
  }

  /** A collective's number in words. */
  static String ordinal(long seq) {
    return seq == 0 ? "no collective at all" : "collective #" + seq;
  }

  /** A call in words. */
  static String describe(@Nullable Call call) {
    return call == null
        ? "an operation that is no longer recorded (only the last "
            + READABLE
            + " collectives and "
            + MESSAGES
            + " messages of a rank are)"
        : Signature.describe(call.code, call.count);
  }
}
