package io.nccl4j.internal.net.ucx;

import io.nccl4j.bindings.UcpWorker;
import io.nccl4j.internal.net.Port;
import org.jspecify.annotations.Nullable;

/** A request: data that is sent or received. Reused. */
final class UcxTransfer {
  final int index;

  /** Address of the header that it sends. */
  final long header;

  private int generation;
  private @Nullable UcxPeer peer;
  private long tag;
  private long memory;
  private long bytes;
  private int state = Port.COMPLETE;

  /** UCX's request, as {@link UcpWorker} returns them. */
  private long request;

  UcxTransfer(int index, long header) {
    this.index = index;
    this.header = header;
  }

  /** Begins anew; returns the request's number. */
  long begin(@Nullable UcxPeer with, long withTag, long address, long length) {
    peer = with;
    tag = withTag;
    memory = address;
    bytes = length;
    state = Port.PENDING;
    request = UcpWorker.OK;
    generation++;
    return (long) generation << Integer.SIZE | index + 1L;
  }

  static int indexOf(long number) {
    return (int) number - 1;
  }

  boolean is(long number) {
    return (int) (number >>> Integer.SIZE) == generation;
  }

  long tag() {
    return tag;
  }

  long memory() {
    return memory;
  }

  long bytes() {
    return bytes;
  }

  /** UCX moves it from now on. */
  void moving(long by) {
    request = by;
    if (UcpWorker.isOver(by)) {
      end(by == UcpWorker.OK ? Port.COMPLETE : Port.FAILED);
    }
  }

  void end(int as) {
    if (state == Port.PENDING) {
      state = as;
    }
  }

  int state() {
    if (state == Port.PENDING && request != UcpWorker.OK) {
      byte status = UcpWorker.status(request);
      // What is left of a closed endpoint UCX does not touch any more, whether it says so or not.
      if (status != UcpWorker.IN_PROGRESS || peer != null && peer.isClosed()) {
        UcpWorker.free(request);
        state = status == UcpWorker.OK ? Port.COMPLETE : Port.FAILED;
      }
    }
    return state;
  }

  /** Whether UCX may touch its memory. */
  boolean isMoving() {
    return request != UcpWorker.OK && state() == Port.PENDING;
  }

  /** Given back: its number is no more. */
  void retire() {
    generation++;
    peer = null;
    request = UcpWorker.OK;
  }
}
