package io.nccl4j.internal.net;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicLong;

/**
 * A cable in the form of a TCP relay: what is connected to one of its sockets goes on to where that
 * socket leads, as long as the cable is whole. Every end that is given is on this machine, so the
 * systems at both ends still acknowledge what they get: keepalive notices nothing of a cut.
 */
public final class Relay implements AutoCloseable {
  private static final int PIECE_BYTES = 64 << 10;

  /** What becomes of bytes on their way. */
  private enum State {
    WHOLE,
    /** They wait, and the buffers of both ends fill up. */
    STALLED,
    /** They vanish, as does the news that an end has closed. */
    CUT
  }

  /** Ports of several threads come at once. */
  private final Queue<ServerSocketChannel> listeners = new ConcurrentLinkedQueue<>();

  private final Queue<SocketChannel> channels = new ConcurrentLinkedQueue<>();
  private final AtomicLong carried = new AtomicLong();
  private final Object change = new Object();
  private State state = State.WHOLE;

  /** A socket of this machine that leads to another one. */
  public InetSocketAddress to(InetSocketAddress target) throws IOException {
    ServerSocketChannel listener =
        ServerSocketChannel.open().bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
    listeners.add(listener);
    Thread.ofVirtual().start(() -> accept(listener, target));
    return (InetSocketAddress) listener.getLocalAddress();
  }

  private void accept(ServerSocketChannel listener, InetSocketAddress target) {
    while (listener.isOpen()) {
      try {
        SocketChannel near = listener.accept();
        SocketChannel far = SocketChannel.open();
        channels.add(near);
        channels.add(far);
        try {
          far.connect(target);
        } catch (IOException e) {
          reset(near);
          continue;
        }
        for (SocketChannel end : List.of(near, far)) {
          end.setOption(StandardSocketOptions.TCP_NODELAY, true);
        }
        Thread.ofVirtual().start(() -> carry(near, far));
        Thread.ofVirtual().start(() -> carry(far, near));
      } catch (IOException e) {
        if (listener.isOpen()) {
          throw new UncheckedIOException(e);
        }
      }
    }
  }

  private void carry(SocketChannel from, SocketChannel to) {
    ByteBuffer piece = ByteBuffer.allocate(PIECE_BYTES);
    try {
      while (true) {
        int read = from.read(piece.clear());
        if (awaitMoving() == State.CUT) {
          if (read < 0) {
            return;
          }
          continue;
        }
        if (read < 0) {
          to.shutdownOutput();
          return;
        }
        carried.addAndGet(read);
        piece.flip();
        while (piece.hasRemaining()) {
          int ignored = to.write(piece);
        }
      }
    } catch (IOException e) {
      // One end is gone: the other one hears of it the same way, unless the cable is cut.
      if (current() != State.CUT) {
        reset(from);
        reset(to);
      }
    }
  }

  private State current() {
    synchronized (change) {
      return state;
    }
  }

  private State awaitMoving() {
    synchronized (change) {
      while (state == State.STALLED) {
        try {
          change.wait();
        } catch (InterruptedException e) {
          throw new IllegalStateException("nobody interrupts it", e);
        }
      }
      return state;
    }
  }

  private void become(State next) {
    synchronized (change) {
      state = next;
      change.notifyAll();
    }
  }

  /** From now on bytes wait. */
  public void stall() {
    become(State.STALLED);
  }

  /** From now on bytes, and whatever else ends say, vanish. */
  public void cut() {
    become(State.CUT);
  }

  /** Bytes go on, those that waited first. */
  public void goOn() {
    become(State.WHOLE);
  }

  /** Resets all connections. */
  public void reset() {
    channels.forEach(Relay::reset);
  }

  private static void reset(SocketChannel channel) {
    try {
      channel.setOption(StandardSocketOptions.SO_LINGER, 0);
      channel.close();
    } catch (ClosedChannelException e) {
      // The thread that reads from it closed it first.
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** How many bytes it has carried, in both directions. */
  public long carried() {
    return carried.get();
  }

  /** How many connections there have been. */
  public int connections() {
    return channels.size() / 2;
  }

  @Override
  public void close() throws IOException {
    for (ServerSocketChannel listener : listeners) {
      listener.close();
    }
    become(State.CUT);
    reset();
  }
}
