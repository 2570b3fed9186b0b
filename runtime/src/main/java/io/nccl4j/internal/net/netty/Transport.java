package io.nccl4j.internal.net.netty;

import io.netty.channel.ChannelConfig;
import io.netty.channel.IoHandlerFactory;
import io.netty.channel.socket.ServerSocketChannel;
import io.netty.channel.socket.SocketChannel;
import org.jspecify.annotations.Nullable;

/** How Netty calls the system: by Java's channels, or by natives of its own. */
interface Transport {
  /** The faster one of those that are here. */
  static Transport best() {
    NioTransport always = new NioTransport();
    try {
      return EpollTransport.isAvailable() ? new EpollTransport() : always;
    } catch (NoClassDefFoundError optional) {
      return always;
    }
  }

  /** What a user reads after the protocol's name; empty if there is nothing to say. */
  String suffix();

  /** What waits for channels. */
  IoHandlerFactory handlers();

  /** A socket that listens. */
  ServerSocketChannel newListener();

  /** A socket that is to be connected. */
  SocketChannel newSocket();

  /** The socket of one of its channels; null if only the channel can reach it. */
  @Nullable BareSocket bare(SocketChannel channel);

  /**
   * After {@code seconds} of silence the system asks the other end's system; the connection is
   * broken after {@code count} questions, {@code seconds} apart, without an answer.
   */
  void keepAlive(ChannelConfig config, int seconds, int count);
}
