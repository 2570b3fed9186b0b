package io.nccl4j.host;

import io.nccl4j.schedule.OpKind;
import io.nccl4j.schedule.Padded;
import io.nccl4j.schedule.Signature;

/**
 * What each rank of a communicator has called, the last {@value ControlBlock#LEDGER_ENTRIES}
 * operations, readable by every other rank even after the writer's death. Entries are written at
 * submission by their owner and read only to explain, so a reader checks the sequence number after
 * reading.
 */
final class Ledger extends Padded {
  private static final long SEQ = 0;
  private static final long CODE = 8;
  private static final long COUNT = 16;

  private final ControlBlock control;
  private final long own;
  private long written;

  Ledger(ControlBlock control, int rank) {
    this.control = control;
    this.own = control.ledger(rank);
  }

  /** Notes a submitted work, by the submitting thread. */
  void issue(HostWork work, long seq) {
    long entry = own + (written++ & ControlBlock.LEDGER_ENTRIES - 1) * ControlBlock.LEDGER_BYTES;
    control.setPlain(entry + CODE, work.code());
    control.setPlain(entry + COUNT, work.count);
    control.setRelease(entry + SEQ, seq);
  }

  /** Sequence number of an entry. */
  long seq(long entry) {
    return control.getAcquire(entry + SEQ);
  }

  /**
   * The entry of a rank's collective, by the low 32 bits of its number; −1 if it is not (or no
   * longer) there.
   */
  long findCollective(int rank, long seq) {
    for (int i = 0; i < ControlBlock.LEDGER_ENTRIES; i++) {
      long entry = entry(rank, i);
      if (hasNumber(entry, seq) && !kind(entry).isPointToPoint()) {
        return entry;
      }
    }
    return -1;
  }

  /**
   * The entry of a rank's send to, or receive from, a peer; −1 if it is not (or no longer) there.
   */
  long findPointToPoint(int rank, OpKind kind, int peer, long seq) {
    for (int i = 0; i < ControlBlock.LEDGER_ENTRIES; i++) {
      long entry = entry(rank, i);
      if (hasNumber(entry, seq) && kind(entry) == kind && root(entry) == peer) {
        return entry;
      }
    }
    return -1;
  }

  /** Whether the entry was written, for an operation with these low 32 bits. */
  private boolean hasNumber(long entry, long seq) {
    long found = seq(entry);
    return found != 0 && (int) found == (int) seq;
  }

  /** The number of a rank's last collective; 0 if it called none. */
  long lastCollective(int rank) {
    long last = 0;
    for (int i = 0; i < ControlBlock.LEDGER_ENTRIES; i++) {
      long entry = entry(rank, i);
      if (!kind(entry).isPointToPoint()) {
        last = Math.max(last, control.getAcquire(entry + SEQ));
      }
    }
    return last;
  }

  /** A collective's number in words. */
  static String ordinal(long seq) {
    return seq == 0 ? "no collective at all" : "collective #" + seq;
  }

  /**
   * Whether two ranks' entries can be of the same collective; the counts of v-forms differ from
   * rank to rank.
   */
  boolean agree(long entry, long other) {
    return control.getPlain(entry + CODE) == control.getPlain(other + CODE)
        && (kind(entry).hasCountPerRank()
            || control.getPlain(entry + COUNT) == control.getPlain(other + COUNT));
  }

  String describe(long entry) {
    return entry < 0
        ? "an operation that is no longer recorded (only the last "
            + ControlBlock.LEDGER_ENTRIES
            + " calls of a rank are)"
        : Signature.describe(control.getPlain(entry + CODE), control.getPlain(entry + COUNT));
  }

  private long entry(int rank, int index) {
    return control.ledger(rank) + (long) index * ControlBlock.LEDGER_BYTES;
  }

  private OpKind kind(long entry) {
    return OpKind.ofOrdinal((int) control.getPlain(entry + CODE) & 0xff);
  }

  private int root(long entry) {
    return (int) (control.getPlain(entry + CODE) >>> 32);
  }
}
