package io.nccl4j.internal.net.netty;

import io.nccl4j.internal.net.Port;
import java.lang.foreign.MemorySegment;

/** A request: data that is sent or received. Reused. */
final class Transfer {
  final int index;
  private long tag;
  private MemorySegment memory = MemorySegment.NULL;
  private long offset;
  private long bytes;
  private long moved;
  private int state = Port.COMPLETE;
  private int generation;

  Transfer(int index) {
    this.index = index;
  }

  /** Begins anew; returns the request's number. */
  long begin(long tag, MemorySegment memory, long offset, long bytes) {
    this.tag = tag;
    this.memory = memory;
    this.offset = offset;
    this.bytes = bytes;
    moved = 0;
    state = Port.PENDING;
    generation++;
    return (long) generation << Integer.SIZE | index + 1L;
  }

  /** Which transfer a request is of. */
  static int indexOf(long request) {
    return (int) request - 1;
  }

  boolean is(long request) {
    return (int) (request >>> Integer.SIZE) == generation;
  }

  long tag() {
    return tag;
  }

  long bytes() {
    return bytes;
  }

  int state() {
    return state;
  }

  /** What has not moved yet. */
  long left() {
    return bytes - moved;
  }

  /** The next part of the memory, of at most {@code most} bytes. */
  MemorySegment rest(long most) {
    return memory.asSlice(offset + moved, Math.min(left(), most));
  }

  /** Takes bytes that have come. */
  void take(MemorySegment from, long at, long length) {
    MemorySegment.copy(from, at, memory, offset + moved, length);
    move(length);
  }

  /** So many more have moved; the last of them complete it. */
  void move(long length) {
    moved += length;
    if (moved == bytes) {
      end(Port.COMPLETE);
    }
  }

  /** Given back: its request is no more. */
  void retire() {
    generation++;
  }

  void end(int as) {
    if (state == Port.PENDING) {
      state = as;
      memory = MemorySegment.NULL;
    }
  }
}
