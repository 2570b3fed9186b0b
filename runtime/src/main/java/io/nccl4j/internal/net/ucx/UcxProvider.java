package io.nccl4j.internal.net.ucx;

import io.nccl4j.BackendUnavailableException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.bindings.Libc;
import io.nccl4j.bindings.Ucp;
import io.nccl4j.internal.net.Network;
import io.nccl4j.internal.net.NetworkConfig;
import io.nccl4j.internal.net.NetworkConfig.Security;
import io.nccl4j.internal.net.NetworkProvider;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;
import org.jspecify.annotations.Nullable;

/** Finds out whether UCX is there and may be used. */
public final class UcxProvider implements NetworkProvider {
  static final String NAME = "ucx";

  private static final Logger LOG = LogManager.getLogger(UcxProvider.class);

  /** For the service loader. */
  public UcxProvider() {}

  @Override
  public String name() {
    return NAME;
  }

  @Override
  public Network open(NetworkConfig config) {
    if (config.security() != Security.TRUSTED) {
      throw new InvalidUsageException(
          "UCX neither encrypts what it sends nor asks who connects, and"
              + " NCCL4J_NETWORK_SECURITY is "
              + config.security(),
          "set NCCL4J_NETWORK_SECURITY="
              + Security.TRUSTED
              + " if nobody else has access to this network, or use NCCL4J_NETWORK=netty");
    }
    if (!Libc.isAvailable()) {
      throw missing(Libc.unavailableReason(), null);
    }
    String reason = Ucp.unavailableReason();
    if (!reason.isEmpty()) {
      throw missing(reason, null);
    }
    String defect = Ucp.defect();
    if (!defect.isEmpty()) {
      LOG.warn("{}; install 1.14 or newer", defect);
    }
    return new UcxNetwork(config);
  }

  static BackendUnavailableException missing(String reason, @Nullable Throwable cause) {
    BackendUnavailableException missing =
        new BackendUnavailableException(
            "the network ucx cannot be used: " + reason,
            "install UCX 1.14 or newer (Debian and Ubuntu: libucx0), or set "
                + Ucp.VARIABLE
                + " to the path of its libucp");
    missing.initCause(cause);
    return missing;
  }
}
