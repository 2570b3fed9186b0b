package io.nccl4j.internal.net.netty;

import io.nccl4j.internal.net.Network;
import io.nccl4j.internal.net.NetworkConfig;
import io.nccl4j.internal.net.NetworkConfig.Security;
import io.nccl4j.internal.net.Port;
import java.net.InetAddress;
import org.jspecify.annotations.Nullable;

/** Makes ports; they share nothing but the job's settings. */
final class NettyNetwork implements Network {
  private final NetworkConfig config;
  private final @Nullable TlsIdentity identity;

  NettyNetwork(NetworkConfig config) {
    // Netty is found missing here, not when the first rank joins.
    OwnedLoop.requireNetty();
    this.config = config;
    if (config.security() == Security.TLS) {
      TlsStream.requireHandler();
      identity = TlsIdentity.create();
    } else {
      identity = null;
    }
  }

  @Override
  public String name() {
    if (identity == null) {
      return NettyProvider.NAME + " (TCP)";
    }
    String library = identity.library();
    return NettyProvider.NAME + " (TCP, TLS" + (library.isEmpty() ? "" : " by " + library) + ")";
  }

  @Override
  public InetAddress address() {
    return config.local();
  }

  @Override
  public Port newPort() {
    return new NettyPort(config, identity);
  }

  @Override
  public void close() {
    if (identity != null) {
      identity.close();
    }
  }
}
