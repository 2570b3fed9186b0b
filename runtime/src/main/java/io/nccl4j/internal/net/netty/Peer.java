package io.nccl4j.internal.net.netty;

import io.nccl4j.internal.net.Port;
import io.netty.buffer.ByteBuf;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import org.jspecify.annotations.Nullable;

/** What a port knows of another one: the connection, what waits for it, what it is to bring. */
final class Peer {
  /** What is to be sent when there is a connection: a frame, and the data that follows it. */
  private record Waiting(ByteBuf frame, @Nullable Transfer data) {}

  final int number;
  final PortAddress address;
  private final Queue<Waiting> waiting = new ArrayDeque<>();
  private final List<Transfer> receives = new ArrayList<>();
  private @Nullable Connection open;
  private @Nullable Connection dialing;

  /** When it said that it would connect itself, by {@link System#nanoTime}; 0 if it has not. */
  private long promised;

  private @Nullable String error;

  Peer(int number, PortAddress address) {
    this.number = number;
    this.address = address;
  }

  @Nullable String error() {
    return error;
  }

  @Nullable Connection open() {
    return open;
  }

  @Nullable Connection dialing() {
    return dialing;
  }

  void dialing(@Nullable Connection connection) {
    dialing = connection;
  }

  /** It dials, too, and that connection will be used. */
  void promises() {
    dialing = null;
    promised = System.nanoTime();
  }

  /** Whether it has not connected for so long although it promised to. */
  boolean isLate(long now, long nanos) {
    return promised != 0 && open == null && error == null && now - promised > nanos;
  }

  /** Whether a connection is there, or on its way. */
  boolean isConnected() {
    return open != null || dialing != null || promised != 0;
  }

  /** Has a connection from now on, and sends what waited for it. */
  void opened(Connection connection) {
    open = connection;
    dialing = null;
    promised = 0;
    for (Waiting next = waiting.poll(); next != null; next = waiting.poll()) {
      connection.write(next.frame, next.data);
    }
  }

  /** Sends a frame and the data that follows it, now or when there is a connection. */
  void write(ByteBuf frame, @Nullable Transfer data) {
    if (open != null) {
      open.write(frame, data);
    } else {
      waiting.add(new Waiting(frame, data));
    }
  }

  boolean hasWaiting() {
    return !waiting.isEmpty();
  }

  /** Data is wanted from it. */
  void expect(Transfer data) {
    receives.add(data);
  }

  /** The oldest receive with a tag, which is none of those expected from now on. */
  @Nullable Transfer expected(long tag) {
    for (int i = 0; i < receives.size(); i++) {
      if (receives.get(i).tag() == tag) {
        return receives.remove(i);
      }
    }
    return null;
  }

  /** Nothing comes from it or goes to it any more. */
  void fail(String why) {
    if (error != null) {
      return;
    }
    error = why;
    for (Transfer receive : receives) {
      receive.end(Port.FAILED);
    }
    receives.clear();
    for (Waiting unsent : waiting) {
      unsent.frame.release();
      if (unsent.data != null) {
        unsent.data.end(Port.FAILED);
      }
    }
    waiting.clear();
    Connection[] connections = {open, dialing};
    open = null;
    dialing = null;
    for (Connection connection : connections) {
      if (connection != null) {
        connection.drop();
      }
    }
  }
}
