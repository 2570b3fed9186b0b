package io.nccl4j.internal.net.ucx;

import io.nccl4j.bindings.UcpWorker;
import io.nccl4j.internal.observe.Recorder;
import io.nccl4j.internal.observe.Recorder.ConnectEvent;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.function.BiConsumer;

/** Opens and closes the endpoints of a port. */
final class UcxEndpoints {
  private final UcpWorker worker;
  private final UcxOutbox outbox;
  private final long connectNanos;
  private final BiConsumer<UcxPeer, String> onFailure;
  private final List<UcxPeer> connecting = new ArrayList<>();
  private final List<UcxPeer> closing = new ArrayList<>();

  /**
   * Without endpoints.
   *
   * @param connectNanos how long a peer has to answer
   * @param onFailure hears of peers that cannot be connected to
   */
  UcxEndpoints(
      UcpWorker worker,
      UcxOutbox outbox,
      long connectNanos,
      BiConsumer<UcxPeer, String> onFailure) {
    this.worker = worker;
    this.outbox = outbox;
    this.connectNanos = connectNanos;
    this.onFailure = onFailure;
  }

  /** Connects to a peer, unless there is an endpoint or it has failed. */
  void open(UcxPeer peer) {
    if (peer.endpoint != UcxPeer.NONE || peer.error() != null) {
      return;
    }
    peer.event = Recorder.HERE.connect("UCX", "peer " + peer.number, true);
    try {
      peer.endpoint = worker.open(peer.address.worker(), peer.number);
    } catch (IllegalStateException e) {
      onFailure.accept(peer, "it can't be connected to: " + e.getMessage());
      tell(peer);
      return;
    }
    peer.since = System.nanoTime();
    outbox.greet(peer);
    connecting.add(peer);
  }

  /** Closes the endpoint of a peer that has failed, soon: UCX itself may be the caller. */
  void close(UcxPeer peer) {
    if (peer.endpoint != UcxPeer.NONE) {
      closing.add(peer);
    }
  }

  /** Moves on those that are being opened or closed. */
  void settle() {
    if (!connecting.isEmpty()) {
      connecting.removeIf(this::isOver);
    }
    if (!closing.isEmpty()) {
      closing.removeIf(this::hasClosed);
    }
  }

  private boolean isOver(UcxPeer peer) {
    if (!isConnected(peer)) {
      return false;
    }
    tell(peer);
    return true;
  }

  private static void tell(UcxPeer peer) {
    ConnectEvent event = peer.event;
    if (event != null) {
      peer.event = null;
      event.ended(Objects.requireNonNullElse(peer.error(), ""));
    }
  }

  /** Whether there is nothing to wait for: whoever hears from this port answers. */
  private boolean isConnected(UcxPeer peer) {
    if (peer.came > 0 || peer.error() != null) {
      return true;
    }
    if (System.nanoTime() - peer.since > connectNanos) {
      onFailure.accept(peer, "it did not answer within " + connectNanos / 1_000_000 + " ms");
      return true;
    }
    return false;
  }

  private boolean hasClosed(UcxPeer peer) {
    if (peer.closing == UcxPeer.NONE) {
      peer.closing = worker.close(peer.endpoint);
    }
    if (UcpWorker.status(peer.closing) == UcpWorker.IN_PROGRESS) {
      return false;
    }
    UcpWorker.free(peer.closing);
    peer.endpoint = UcxPeer.NONE;
    return true;
  }

  /** Whether all that were to be closed are. */
  boolean areClosed() {
    closing.removeIf(this::hasClosed);
    return closing.isEmpty();
  }
}
