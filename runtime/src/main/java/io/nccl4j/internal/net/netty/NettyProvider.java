package io.nccl4j.internal.net.netty;

import io.nccl4j.BackendUnavailableException;
import io.nccl4j.internal.net.Network;
import io.nccl4j.internal.net.NetworkConfig;
import io.nccl4j.internal.net.NetworkConfig.Security;
import io.nccl4j.internal.net.NetworkProvider;

/** Finds out whether Netty is there. Loading this class does not need it. */
public final class NettyProvider implements NetworkProvider {
  static final String NAME = "netty";

  /** For the service loader. */
  public NettyProvider() {}

  @Override
  public String name() {
    return NAME;
  }

  @Override
  public Network open(NetworkConfig config) {
    try {
      return new NettyNetwork(config);
    } catch (NoClassDefFoundError e) {
      BackendUnavailableException missing =
          new BackendUnavailableException(
              "the network needs Netty 4.2, and " + e.getMessage() + " is missing",
              "add io.netty:netty-"
                  + (config.security() == Security.TLS ? "handler" : "transport")
                  + " to the class path or module path");
      missing.initCause(e);
      throw missing;
    }
  }
}
