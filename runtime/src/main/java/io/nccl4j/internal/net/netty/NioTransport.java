package io.nccl4j.internal.net.netty;

import io.netty.channel.ChannelConfig;
import io.netty.channel.IoHandlerFactory;
import io.netty.channel.nio.NioIoHandler;
import io.netty.channel.socket.ServerSocketChannel;
import io.netty.channel.socket.SocketChannel;
import io.netty.channel.socket.nio.NioChannelOption;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import io.netty.channel.socket.nio.NioSocketChannel;
import jdk.net.ExtendedSocketOptions;
import org.jspecify.annotations.Nullable;

/** By Java's channels. */
final class NioTransport implements Transport {
  private final IoHandlerFactory handlers = NioIoHandler.newFactory();

  @Override
  public String suffix() {
    return "";
  }

  @Override
  public IoHandlerFactory handlers() {
    return handlers;
  }

  @Override
  public ServerSocketChannel newListener() {
    return new NioServerSocketChannel();
  }

  @Override
  public SocketChannel newSocket() {
    return new NioSocketChannel();
  }

  @Override
  public @Nullable BareSocket bare(SocketChannel channel) {
    return null;
  }

  @Override
  public void keepAlive(ChannelConfig config, int seconds, int count) {
    config.setOption(NioChannelOption.of(ExtendedSocketOptions.TCP_KEEPIDLE), seconds);
    config.setOption(NioChannelOption.of(ExtendedSocketOptions.TCP_KEEPINTERVAL), seconds);
    config.setOption(NioChannelOption.of(ExtendedSocketOptions.TCP_KEEPCOUNT), count);
  }
}
