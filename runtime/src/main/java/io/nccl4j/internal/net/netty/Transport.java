package io.nccl4j.internal.net.netty;

import io.netty.channel.ChannelConfig;
import io.netty.channel.IoHandlerFactory;
import io.netty.channel.socket.ServerSocketChannel;
import io.netty.channel.socket.SocketChannel;

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

  /** After so many seconds of silence the other end's system is asked, and so many times more. */
  void keepAlive(ChannelConfig config, int idleSeconds, int intervalSeconds, int count);
}
