package io.nccl4j.internal.net.netty;

import io.nccl4j.internal.net.Port;
import io.nccl4j.internal.net.Request;
import java.lang.foreign.MemorySegment;

/** Data that a connection sends or receives. */
final class Transfer extends Request {
  private MemorySegment memory = MemorySegment.NULL;
  private long offset;
  private long moved;

  Transfer(int index) {
    super(index);
  }

  /** Begins anew; returns the request's number. */
  long begin(long tag, MemorySegment in, long at, long length) {
    memory = in;
    offset = at;
    moved = 0;
    begin(tag, length);
    return number();
  }

  /** What has not moved yet. */
  long left() {
    return bytes() - moved;
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
    if (left() == 0) {
      end(Port.COMPLETE);
    }
  }

  @Override
  public void end(int as) {
    super.end(as);
    memory = MemorySegment.NULL;
  }
}
