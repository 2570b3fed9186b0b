package io.nccl4j.internal.net.ucx;

import io.nccl4j.internal.net.Expected;
import io.nccl4j.internal.observe.Recorder.ConnectEvent;
import org.jspecify.annotations.Nullable;

/** What a port knows of another one: its endpoint, what is to leave, what it is to bring. */
final class UcxPeer {
  /** No endpoint, or no request. */
  static final long NONE = 0;

  final int number;
  final UcxAddress address;

  /** Data that is wanted from it. */
  final Expected<UcxTransfer> receives = new Expected<>();

  /** UCX's handle for the connection to it. */
  long endpoint = NONE;

  /** Messages that were sent to it, and that came from it. */
  long sent;

  long came;

  /** Small messages that have not left. */
  @Nullable UcxFrame open;

  /** When it was connected to, by {@link System#nanoTime}. */
  long since;

  /** Ends when it has answered or failed. */
  @Nullable ConnectEvent event;

  /** The request that closes its endpoint. */
  long closing = NONE;

  private @Nullable String error;

  UcxPeer(int number, UcxAddress address) {
    this.number = number;
    this.address = address;
  }

  @Nullable String error() {
    return error;
  }

  /** Whether messages can be exchanged with it. */
  boolean isOpen() {
    return endpoint != NONE && error == null;
  }

  /** Whether it has failed and UCX is done with it. */
  boolean isClosed() {
    return error != null && endpoint == NONE;
  }

  /** Nothing more is expected from it. */
  void fail(String why) {
    error = why;
    receives.fail();
  }
}
