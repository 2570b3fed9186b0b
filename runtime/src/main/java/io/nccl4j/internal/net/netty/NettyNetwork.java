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
  private final Transport transport;

  NettyNetwork(NetworkConfig config) {
    // Netty is found missing here, not when the first rank joins.
    transport = Transport.best();
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
    return NettyProvider.NAME + " (TCP" + transport.suffix() + tls() + ")";
  }

  private String tls() {
    String library = identity == null ? "" : identity.library();
    return (identity == null ? "" : ", TLS") + (library.isEmpty() ? "" : " by " + library);
  }

  @Override
  public InetAddress address() {
    return config.local();
  }

  @Override
  public Port newPort() {
    return new NettyPort(config, identity, transport);
  }

  @Override
  public void close() {
    if (identity != null) {
      identity.close();
    }
  }
}
