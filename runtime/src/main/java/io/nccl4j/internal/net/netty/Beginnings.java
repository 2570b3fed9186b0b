package io.nccl4j.internal.net.netty;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/**
 * The connections of a port that are still being made, and the peers that have promised to make
 * one. Whatever takes too long is given up.
 */
final class Beginnings {
  private final NettyPort port;
  private final Duration timeout;

  /** Connections that are not proved yet, or wait until their peer has got a number. */
  private final List<Connection> strangers = new ArrayList<>();

  /** Peers that will connect themselves, since both ends have dialed. */
  private final List<Peer> promises = new ArrayList<>();

  /**
   * No connection is being made yet.
   *
   * @param timeout for a connection to be made and proved
   */
  Beginnings(NettyPort port, Duration timeout) {
    this.port = port;
    this.timeout = timeout;
  }

  /** Whether there are none. */
  boolean isEmpty() {
    return strangers.isEmpty() && promises.isEmpty();
  }

  /** A connection begins. */
  void add(Connection connection) {
    strangers.add(connection);
  }

  /** A connection is open, or has ended. */
  void remove(Connection connection) {
    strangers.remove(connection);
  }

  /** A peer will connect. */
  void add(Peer peer) {
    promises.add(peer);
  }

  /** The connections at this moment: what is done with them may remove some. */
  List<Connection> connections() {
    return List.copyOf(strangers);
  }

  /** Ends connections whose other end takes too long to prove itself, or to come at all. */
  void dropLate() {
    if (isEmpty()) {
      return;
    }
    long now = System.nanoTime();
    long most = timeout.toNanos();
    for (Connection connection : connections()) {
      if (now - connection.since() > most) {
        Peer dialed = connection.dialed();
        if (dialed != null && dialed.dialing() == connection) {
          port.failed(dialed, "it did not answer within " + timeout.toMillis() + " ms");
        }
        connection.drop();
      }
    }
    promises.removeIf(peer -> peer.open() != null || peer.error() != null);
    for (Peer peer : List.copyOf(promises)) {
      if (peer.isLate(now, most)) {
        port.failed(peer, "it did not connect within " + timeout.toMillis() + " ms");
      }
    }
  }
}
