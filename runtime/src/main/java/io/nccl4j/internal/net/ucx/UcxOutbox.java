package io.nccl4j.internal.net.ucx;

import io.nccl4j.bindings.UcpWorker;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;

/**
 * What a port sends. Small messages collect in a frame for each peer until they are flushed;
 * everything else leaves at once.
 */
final class UcxOutbox {
  private final UcpWorker worker;
  private final long sender;
  private final Arena arena;
  private final Deque<UcxFrame> free = new ArrayDeque<>();

  /** Peers with messages that have not left. */
  private final List<UcxPeer> open = new ArrayList<>();

  /** Frames that UCX has not done with. */
  private final List<UcxFrame> leaving = new ArrayList<>();

  private int moved;

  /**
   * Without messages.
   *
   * @param sender the id of the port
   * @param arena for frames
   */
  UcxOutbox(UcpWorker worker, long sender, Arena arena) {
    this.worker = worker;
    this.sender = sender;
    this.arena = arena;
  }

  /** Sends one message; returns UCX's request. */
  long send(UcxPeer to, long header, long tag, long data, long bytes, int protocol) {
    UcxHeader.write(header, sender, tag, to.sent++);
    moved++;
    return worker.send(to.endpoint, header, UcxHeader.BYTES, data, bytes, protocol);
  }

  void post(
      UcxPeer to,
      long tag,
      MemorySegment head,
      long headOffset,
      long headBytes,
      MemorySegment body,
      long bodyOffset,
      long bodyBytes) {
    if (to.open != null && !to.open.fits(headBytes + bodyBytes)) {
      flush(to);
    }
    UcxFrame frame = to.open;
    if (frame == null) {
      frame = frame();
      to.open = frame;
      open.add(to);
    }
    frame.add(tag, head, headOffset, headBytes, body, bodyOffset, bodyBytes);
  }

  /** Sends a frame of no messages, which shows the other end who is there. */
  void greet(UcxPeer peer) {
    leave(peer, frame());
  }

  private UcxFrame frame() {
    UcxFrame again = free.poll();
    return again != null ? again : new UcxFrame(arena.allocate(UcxFrame.size(), Long.BYTES));
  }

  /** Sends all that is posted. */
  void flush() {
    while (!open.isEmpty()) {
      leave(open.removeLast());
    }
  }

  /** Sends what is posted to one peer. */
  void flush(UcxPeer peer) {
    if (open.remove(peer)) {
      leave(peer);
    }
  }

  /** Drops what is posted to a peer. */
  void drop(UcxPeer peer) {
    UcxFrame unsent = peer.open;
    if (unsent != null) {
      peer.open = null;
      open.remove(peer);
      recycle(unsent);
    }
  }

  private void leave(UcxPeer peer) {
    UcxFrame frame = peer.open;
    if (frame != null) {
      peer.open = null;
      leave(peer, frame);
    }
  }

  private void leave(UcxPeer peer, UcxFrame frame) {
    if (!peer.isOpen()) {
      recycle(frame);
      return;
    }
    frame.request =
        send(
            peer, frame.header(), UcxHeader.FRAME, frame.content(), frame.bytes(), UcpWorker.EAGER);
    if (UcpWorker.isOver(frame.request)) {
      // If it has failed, UCX reports the peer, too.
      recycle(frame);
    } else {
      leaving.add(frame);
    }
  }

  private void recycle(UcxFrame frame) {
    frame.clear();
    free.push(frame);
  }

  /** Takes back frames that have left. */
  void settle() {
    if (!leaving.isEmpty()) {
      leaving.removeIf(this::hasLeft);
    }
  }

  private boolean hasLeft(UcxFrame frame) {
    if (UcpWorker.status(frame.request) == UcpWorker.IN_PROGRESS) {
      return false;
    }
    UcpWorker.free(frame.request);
    recycle(frame);
    return true;
  }

  /** Whether nothing that was posted is on its way to UCX. */
  boolean isFlushed() {
    flush();
    settle();
    return leaving.isEmpty();
  }

  /** How many messages were sent since this was asked last. */
  int moved() {
    int since = moved;
    moved = 0;
    return since;
  }

  /** Gives UCX's requests back. */
  void close() {
    leaving.forEach(frame -> UcpWorker.free(frame.request));
  }
}
