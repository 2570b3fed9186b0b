package io.nccl4j.internal.span;

import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/**
 * The transfers between this rank and another one that follow each other, in both directions; the
 * {@link Wire}'s.
 */
final class Link {
  private static final int MASK = Wire.SLOTS - 1;

  final int peer;
  final int lane;

  /** How many sends and receives have begun. */
  int sent;

  int expected;

  /** How many receives the peer is known to have begun, and was told that this rank has. */
  int peerExpects;

  int told;

  /** The last ones, by number. */
  private final Transfer[] sends = new Transfer[Wire.SLOTS];

  private final Transfer[] receives = new Transfer[Wire.SLOTS];

  /** Whether something came for a transfer that has not begun: its announcement, or its request. */
  private final boolean[] announced = new boolean[Wire.SLOTS];

  private final boolean[] asked = new boolean[Wire.SLOTS];

  /** The port's requests that send the frames. */
  final long[] frameRequests = new long[Wire.SLOTS];

  final long[] noteRequests = new long[Wire.NOTES];
  int notes;

  /** The last collective that the peer is known to have called, if this rank has not yet. */
  Wire.@Nullable Header ahead;

  /** Frames to send, frames that landed, headers of requests that landed, headers to send. */
  final MemorySegment frames;

  private final long start;

  Link(int peer, int lane, MemorySegment frames, long start) {
    this.peer = peer;
    this.lane = lane;
    this.frames = frames;
    this.start = start;
    for (int i = 0; i < Wire.SLOTS; i++) {
      sends[i] = new Transfer(this, true);
      receives[i] = new Transfer(this, false);
    }
  }

  Transfer send(int seq) {
    return sends[seq & MASK];
  }

  Transfer receive(int seq) {
    return receives[seq & MASK];
  }

  void setAnnounced(int seq, boolean now) {
    announced[seq & MASK] = now;
  }

  boolean isAnnounced(int seq) {
    return announced[seq & MASK];
  }

  void setAsked(int seq, boolean now) {
    asked[seq & MASK] = now;
  }

  boolean isAsked(int seq) {
    return asked[seq & MASK];
  }

  long sendFrame(int seq) {
    return start + (long) (seq & MASK) * Wire.FRAME_BYTES;
  }

  long landedFrame(int seq) {
    return start + (long) (Wire.SLOTS + (seq & MASK)) * Wire.FRAME_BYTES;
  }

  long askFrame(int seq) {
    return start + 2L * Wire.SLOTS * Wire.FRAME_BYTES + (long) (seq & MASK) * Wire.HEADER_BYTES;
  }

  long note(int number) {
    return start
        + 2L * Wire.SLOTS * Wire.FRAME_BYTES
        + (long) (Wire.SLOTS + (number & Wire.NOTES - 1)) * Wire.HEADER_BYTES;
  }
}
