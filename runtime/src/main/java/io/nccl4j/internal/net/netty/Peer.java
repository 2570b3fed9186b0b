package io.nccl4j.internal.net.netty;

import io.nccl4j.internal.net.Expected;
import io.nccl4j.internal.net.Port;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayDeque;
import java.util.Queue;
import org.jspecify.annotations.Nullable;

/** What a port knows of another one: the connection, what waits for it, what it is to bring. */
final class Peer {
  /** What is to be sent when there is a connection: a message, or data. */
  private record Waiting(long tag, byte[] message, @Nullable Transfer data) {}

  private static final byte[] NOTHING = {};

  final int number;
  final PortAddress address;
  private final Queue<Waiting> waiting = new ArrayDeque<>();
  private final Expected<Transfer> receives = new Expected<>();
  private @Nullable Connection open;
  private @Nullable Connection dialing;
  private @Nullable Connection watch;

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

  /** The connection that carries nothing. */
  @Nullable Connection watch() {
    return watch;
  }

  void watch(@Nullable Connection connection) {
    watch = connection;
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
    Outlet outlet = connection.outlet();
    for (Waiting next = waiting.poll(); next != null; next = waiting.poll()) {
      if (next.data != null) {
        outlet.send(next.tag, next.data);
      } else {
        MemorySegment message = MemorySegment.ofArray(next.message);
        outlet.post(next.tag, message, 0, next.message.length, MemorySegment.NULL, 0, 0);
      }
    }
  }

  /** Sends data, now or when there is a connection. */
  void send(long tag, Transfer data) {
    if (open != null) {
      open.outlet().send(tag, data);
    } else {
      waiting.add(new Waiting(tag, NOTHING, data));
    }
  }

  /** Sends a small message, soon or when there is a connection. */
  void post(
      long tag,
      MemorySegment head,
      long headOffset,
      int headBytes,
      MemorySegment body,
      long bodyOffset,
      int bodyBytes) {
    if (open != null) {
      open.outlet().post(tag, head, headOffset, headBytes, body, bodyOffset, bodyBytes);
      return;
    }
    byte[] message = new byte[headBytes + bodyBytes];
    MemorySegment.copy(head, ValueLayout.JAVA_BYTE, headOffset, message, 0, headBytes);
    MemorySegment.copy(body, ValueLayout.JAVA_BYTE, bodyOffset, message, headBytes, bodyBytes);
    waiting.add(new Waiting(tag, message, null));
  }

  boolean hasWaiting() {
    return !waiting.isEmpty();
  }

  /** Data that is wanted from it. */
  Expected<Transfer> receives() {
    return receives;
  }

  /** Nothing comes from it or goes to it any more. */
  void fail(String why) {
    if (error != null) {
      return;
    }
    error = why;
    receives.fail();
    for (Waiting unsent : waiting) {
      if (unsent.data != null) {
        unsent.data.end(Port.FAILED);
      }
    }
    waiting.clear();
    Connection[] connections = {open, dialing, watch};
    open = null;
    dialing = null;
    watch = null;
    for (Connection connection : connections) {
      if (connection != null) {
        connection.drop();
      }
    }
  }
}
