package io.nccl4j.internal.net.ucx;

import io.nccl4j.internal.net.Port;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** What a port knows of another one: its endpoint, what is to leave, what it is to bring. */
final class UcxPeer {
  /** No endpoint, or no request. */
  static final long NONE = 0;

  final int number;
  final UcxAddress address;

  /** What UCX calls the way there. */
  long endpoint = NONE;

  /** Messages that were sent to it, and that came from it. */
  long sent;

  long came;

  /** Small messages that have not left. */
  @Nullable UcxFrame open;

  /** When it was connected to, by {@link System#nanoTime}, and the request that proves it. */
  long since;

  long connecting = NONE;

  /** The request that closes its endpoint. */
  long closing = NONE;

  private final List<UcxTransfer> receives = new ArrayList<>();
  private @Nullable String error;

  UcxPeer(int number, UcxAddress address) {
    this.number = number;
    this.address = address;
  }

  @Nullable String error() {
    return error;
  }

  /** Whether it has failed and UCX is done with it. */
  boolean isClosed() {
    return error != null && endpoint == NONE;
  }

  /** Data is wanted from it. */
  void expect(UcxTransfer data) {
    receives.add(data);
  }

  /** The oldest receive with a tag, which is none of those expected from now on. */
  @Nullable UcxTransfer expected(long tag) {
    for (int i = 0; i < receives.size(); i++) {
      if (receives.get(i).tag() == tag) {
        return receives.remove(i);
      }
    }
    return null;
  }

  /** Nothing more is expected from it. */
  void fail(String why) {
    error = why;
    for (UcxTransfer receive : receives) {
      receive.end(Port.FAILED);
    }
    receives.clear();
  }
}
