package io.nccl4j.internal.net.ucx;

import io.nccl4j.bindings.Ucp;
import io.nccl4j.internal.net.Network;
import io.nccl4j.internal.net.NetworkConfig;
import io.nccl4j.internal.net.Port;
import java.net.InetAddress;

/** Makes ports; each has a context of its own, so that threads never wait for each other in UCX. */
final class UcxNetwork implements Network {
  private final NetworkConfig config;

  UcxNetwork(NetworkConfig config) {
    this.config = config;
  }

  @Override
  public String name() {
    return UcxProvider.NAME + " " + Ucp.version();
  }

  @Override
  public InetAddress address() {
    return config.local();
  }

  @Override
  public Port newPort() {
    Ucp context;
    try {
      context = Ucp.open();
    } catch (UnsupportedOperationException e) {
      throw UcxProvider.missing(String.valueOf(e.getMessage()), e);
    }
    return new UcxPort(context, config.connectTimeout());
  }

  @Override
  public void close() {}
}
