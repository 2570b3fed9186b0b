package io.nccl4j.internal.net.ucx;

import io.nccl4j.bindings.UcpWorker;
import io.nccl4j.internal.net.Port;
import io.nccl4j.internal.net.Request;
import org.jspecify.annotations.Nullable;

/** Data that UCX sends or receives. */
final class UcxTransfer extends Request {
  /** Address of the header that it sends. */
  final long header;

  private @Nullable UcxPeer peer;
  private boolean isSend;
  private long memory;

  /** UCX's request, as {@link UcpWorker} returns them. */
  private long request = UcpWorker.OK;

  UcxTransfer(int index, long header) {
    super(index);
    this.header = header;
  }

  /** Begins to send; returns the request's number. */
  long beginSend(UcxPeer to, long tag, long address, long length) {
    isSend = true;
    return begin(to, tag, address, length);
  }

  /** Begins to receive; returns the request's number. */
  long beginReceive(UcxPeer from, long tag, long address, long length) {
    isSend = false;
    return begin(from, tag, address, length);
  }

  private long begin(UcxPeer with, long tag, long address, long length) {
    peer = with;
    memory = address;
    begin(tag, length);
    return number();
  }

  long memory() {
    return memory;
  }

  /** UCX moves it from now on. */
  void moving(long by) {
    request = by;
    if (UcpWorker.isOver(by)) {
      end(by == UcpWorker.OK ? Port.COMPLETE : Port.FAILED);
    }
  }

  @Override
  public int state() {
    if (super.state() == Port.PENDING && request != UcpWorker.OK) {
      byte status = UcpWorker.status(request);
      // UCX does not touch what is left of a closed endpoint, even if it never says that it ended.
      if (status != UcpWorker.IN_PROGRESS || peer != null && peer.isClosed()) {
        UcpWorker.free(request);
        end(status == UcpWorker.OK ? Port.COMPLETE : Port.FAILED);
      }
    }
    return super.state();
  }

  /** Whether UCX may touch its memory. */
  boolean isMoving() {
    return request != UcpWorker.OK && state() == Port.PENDING;
  }

  /** Whether it is a send that UCX has not done with. */
  boolean isSending() {
    return isSend && isMoving();
  }

  @Override
  protected void retire() {
    super.retire();
    peer = null;
    request = UcpWorker.OK;
  }
}
