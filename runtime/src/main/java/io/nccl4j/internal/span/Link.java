package io.nccl4j.internal.span;

import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/**
 * The transfers between this rank and another one that follow each other, in both directions; the
 * {@link Wire}'s.
 */
final class Link {
  /**
   * Most bytes of announcements, with their data, that are kept until their receives begin: one of
   * the largest, and small ones beside it.
   */
  static final int EARLY_BYTES = 68 << 10;

  /** Where they are kept: however they lie, there is room for one more of the largest. */
  private static final int RING_BYTES = EARLY_BYTES + pad(Wire.FRAME_BYTES);

  private static final int MASK = Wire.SLOTS - 1;

  /** What a link needs: the ring, headers of requests that came early, a header to send. */
  static final long BYTES = RING_BYTES + (Wire.SLOTS + 1L) * Wire.HEADER_BYTES;

  final int peer;
  final int lane;

  /** How many sends and receives have begun. */
  int sent;

  int expected;

  /** How many of its receives the peer was told to have begun, and how much they hold. */
  int told;

  long untoldBytes;

  /** How many receives the peer is known to have begun; what it may have to keep beyond them. */
  private int peerExpects;

  private long peerKeeps;

  /** The last ones, by number. */
  private final Transfer[] sends = new Transfer[Wire.SLOTS];

  private final Transfer[] receives = new Transfer[Wire.SLOTS];

  /** How much the peer keeps of each send that it does not expect yet. */
  private final int[] peerKept = new int[Wire.SLOTS];

  /** Whether the peer has asked for a send that has not begun. */
  private final boolean[] asked = new boolean[Wire.SLOTS];

  /** Where announcements lie whose receives have not begun; −1 where there is none. */
  private final int[] keptAt = new int[Wire.SLOTS];

  /** Where in the ring the next one goes, and where the oldest one lies. */
  private int ringEnd;

  private int ringStart;
  private int kept;

  /** The last collective that the peer is known to have called, if this rank has not yet. */
  Wire.@Nullable Header ahead;

  final MemorySegment memory;

  /** Where a header is put together that is to be sent. */
  final long head;

  private final long start;

  /**
   * A link that was not used.
   *
   * @param memory has {@link #BYTES} for it, from {@code start}
   */
  Link(int peer, int lane, MemorySegment memory, long start) {
    this.peer = peer;
    this.lane = lane;
    this.memory = memory;
    this.start = start;
    head = start + RING_BYTES + (long) Wire.SLOTS * Wire.HEADER_BYTES;
    for (int i = 0; i < Wire.SLOTS; i++) {
      sends[i] = new Transfer(this, true);
      receives[i] = new Transfer(this, false);
      keptAt[i] = -1;
    }
  }

  Transfer send(int seq) {
    return sends[seq & MASK];
  }

  Transfer receive(int seq) {
    return receives[seq & MASK];
  }

  void setAsked(int seq, boolean now) {
    asked[seq & MASK] = now;
  }

  boolean isAsked(int seq) {
    return asked[seq & MASK];
  }

  long askFrame(int seq) {
    return start + RING_BYTES + (long) (seq & MASK) * Wire.HEADER_BYTES;
  }

  // ---- what the peer may have to keep

  private static int pad(int bytes) {
    return bytes + Long.BYTES - 1 & -Long.BYTES;
  }

  /** How much the announcement of a transfer takes. */
  static int keptBytes(Transfer t) {
    return keptBytes(t.isSmall() ? t.bytes : 0);
  }

  private static int keptBytes(long data) {
    return pad(Wire.HEADER_BYTES + (int) data);
  }

  /** Whether the peer has room for an announcement, if its receive has not begun. */
  boolean canKeep(Transfer t) {
    return canKeep(t.seq, keptBytes(t));
  }

  /** Whether the next sends, small ones of this many bytes each, would leave at once. */
  boolean canSendAtOnce(int number, long bytes) {
    for (int i = 1; i <= number; i++) {
      if (send(sent + i).state != Transfer.IDLE) {
        return false;
      }
    }
    return send(sent).state != Transfer.WAITING
        && canKeep(sent + number, number * keptBytes(bytes));
  }

  /** How many sends have begun whose receives are not known to have. */
  int ahead() {
    return Math.max(0, sent - peerExpects);
  }

  private boolean canKeep(int seq, int bytes) {
    int ahead = seq - peerExpects;
    return ahead <= 0 || ahead <= Wire.SLOTS && peerKeeps + bytes <= EARLY_BYTES;
  }

  /** It was sent. */
  void announced(Transfer t) {
    if (t.seq - peerExpects > 0) {
      int bytes = keptBytes(t);
      peerKept[t.seq & MASK] = bytes;
      peerKeeps += bytes;
    }
  }

  /** The peer has begun so many receives. */
  void peerExpects(int count) {
    int most = sent + Wire.SLOTS;
    int known = count - most > 0 ? most : count;
    while (known - peerExpects > 0) {
      int slot = ++peerExpects & MASK;
      peerKeeps -= peerKept[slot];
      peerKept[slot] = 0;
    }
  }

  // ---- what is kept here

  /** Keeps an announcement until its receive begins; false if the peer sent more than it may. */
  boolean keep(int seq, MemorySegment from, long offset, long bytes) {
    int length = pad((int) bytes);
    if (kept == 0) {
      ringStart = 0;
      ringEnd = 0;
    }
    boolean isWrapped = kept > 0 && ringEnd <= ringStart;
    int at = ringEnd;
    if (!isWrapped && at + length > RING_BYTES) {
      at = 0;
      isWrapped = true;
    }
    if (at + length > (isWrapped ? ringStart : RING_BYTES)) {
      return false;
    }
    MemorySegment.copy(from, offset, memory, start + at, bytes);
    keptAt[seq & MASK] = at;
    ringEnd = at + length;
    kept++;
    return true;
  }

  boolean isKept(int seq) {
    return keptAt[seq & MASK] >= 0;
  }

  /** Where it lies. */
  long kept(int seq) {
    return start + keptAt[seq & MASK];
  }

  /** It is not needed any more; the oldest goes first. */
  void release(int seq) {
    keptAt[seq & MASK] = -1;
    kept--;
    if (kept > 0) {
      ringStart = keptAt[seq + 1 & MASK];
    }
  }
}
