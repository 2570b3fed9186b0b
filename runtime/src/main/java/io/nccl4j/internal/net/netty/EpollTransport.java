package io.nccl4j.internal.net.netty;

import io.netty.channel.ChannelConfig;
import io.netty.channel.IoHandlerFactory;
import io.netty.channel.epoll.Epoll;
import io.netty.channel.epoll.EpollChannelOption;
import io.netty.channel.epoll.EpollIoHandler;
import io.netty.channel.epoll.EpollServerSocketChannel;
import io.netty.channel.epoll.EpollSocketChannel;
import io.netty.channel.socket.ServerSocketChannel;
import io.netty.channel.socket.SocketChannel;
import io.netty.channel.unix.Socket;
import java.io.IOException;
import java.nio.ByteBuffer;

/** By Netty's natives for Linux, which take none of the locks of Java's channels. */
final class EpollTransport implements Transport {
  private final IoHandlerFactory handlers = EpollIoHandler.newFactory();

  /** Whether they can be loaded. */
  static boolean isAvailable() {
    return Epoll.isAvailable();
  }

  @Override
  public String suffix() {
    return " by epoll";
  }

  @Override
  public IoHandlerFactory handlers() {
    return handlers;
  }

  @Override
  public ServerSocketChannel newListener() {
    return new EpollServerSocketChannel();
  }

  @Override
  public SocketChannel newSocket() {
    return new EpollSocketChannel();
  }

  @Override
  public BareSocket bare(SocketChannel channel) {
    // Its recv and send take less time than read and write, which work on any file.
    Socket socket = (Socket) ((EpollSocketChannel) channel).fd();
    return new BareSocket() {
      @Override
      public int read(ByteBuffer buffer) throws IOException {
        return socket.recv(buffer, buffer.position(), buffer.limit());
      }

      @Override
      public int write(ByteBuffer buffer) throws IOException {
        return socket.send(buffer, buffer.position(), buffer.limit());
      }
    };
  }

  @Override
  public void keepAlive(ChannelConfig config, int seconds, int count) {
    config.setOption(EpollChannelOption.TCP_KEEPIDLE, seconds);
    config.setOption(EpollChannelOption.TCP_KEEPINTVL, seconds);
    config.setOption(EpollChannelOption.TCP_KEEPCNT, count);
  }
}
