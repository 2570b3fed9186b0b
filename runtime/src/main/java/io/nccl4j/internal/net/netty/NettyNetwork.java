package io.nccl4j.internal.net.netty;

import io.nccl4j.internal.net.Network;
import io.nccl4j.internal.net.NetworkConfig;
import io.nccl4j.internal.net.Port;
import java.net.InetAddress;

/** Makes ports; they share nothing but the job's settings. */
final class NettyNetwork implements Network {
  private final NetworkConfig config;

  NettyNetwork(NetworkConfig config) {
    // Netty is found missing here, not when the first rank joins.
    OwnedLoop.requireNetty();
    this.config = config;
  }

  @Override
  public String name() {
    return NettyProvider.NAME + " (TCP)";
  }

  @Override
  public InetAddress address() {
    return config.local();
  }

  @Override
  public Port newPort() {
    return new NettyPort(config);
  }

  @Override
  public void close() {}
}
