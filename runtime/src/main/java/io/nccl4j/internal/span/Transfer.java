package io.nccl4j.internal.span;

import java.lang.foreign.MemorySegment;

/** One range of memory on its way between two ranks. It is used again and again. */
final class Transfer {
  /** There is none. */
  static final int IDLE = 0;

  /** A receive whose data has not come, or is coming. */
  static final int EXPECTED = 1;

  /** A send for which the peer may have no room yet. */
  static final int WAITING = 2;

  /** A send that goes when the peer asks for it. */
  static final int ANNOUNCED = 3;

  /** The port sends it. */
  static final int SENDING = 4;

  /** All is done. */
  static final int DONE = 5;

  /** Its peer is gone: it never ends. */
  static final int LOST = 6;

  final Link link;
  final boolean sends;
  int state;
  int seq;
  MemorySegment memory = MemorySegment.NULL;
  long offset;
  long bytes;

  // What operation it belongs to.
  int word;
  long code;
  long count;
  long call;
  int elementBytes;

  /** Of a large send: the receiver has asked for its next part. */
  boolean asked;

  /** Bytes of a large one that were sent, or asked for. */
  long moved;

  /** The port's. */
  long request;

  Transfer(Link link, boolean sends) {
    this.link = link;
    this.sends = sends;
  }

  boolean isSmall() {
    return bytes <= Wire.EAGER_BYTES;
  }
}
