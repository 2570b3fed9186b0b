package io.nccl4j.internal.host.engine;

import io.nccl4j.internal.host.layout.Layout;
import java.lang.foreign.MemorySegment;

/**
 * The private memory that one rank's unfinished operations work with, for other ranks of its
 * process: what only they can reach has no offset in a heap. A place is that of the operation's
 * slot, whose word makes it visible.
 */
public final class OwnSegments {
  final MemorySegment[] send = new MemorySegment[Layout.OUTBOX_SLOTS];
  final MemorySegment[] recv = new MemorySegment[Layout.OUTBOX_SLOTS];

  /** The segments of messages, for each peer. */
  final MemorySegment[] sent;

  /** Starts without any segments. */
  public OwnSegments(int nranks) {
    sent = new MemorySegment[nranks * Layout.LANE_SLOTS];
  }
}
