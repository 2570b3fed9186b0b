package io.nccl4j.internal.net;

import io.nccl4j.bindings.Ucp;
import io.nccl4j.internal.net.NetworkConfig.PortRange;
import io.nccl4j.internal.net.NetworkConfig.Security;
import java.net.InetAddress;
import java.time.Duration;
import java.util.ServiceLoader;
import java.util.UUID;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.BeforeEach;

/** The contract on UCX, over whatever it finds here. */
final class UcxPortTest extends PortContract {
  @BeforeEach
  void requireUcx() {
    String reason = Ucp.unavailableReason();
    Assumptions.assumeTrue(reason.isEmpty(), reason);
  }

  private static NetworkProvider ucx() {
    return ServiceLoader.load(NetworkProvider.class).stream()
        .map(ServiceLoader.Provider::get)
        .filter(provider -> provider.name().equals("ucx"))
        .findFirst()
        .orElseThrow();
  }

  private static NetworkConfig config(Security security) {
    return new NetworkConfig(
        UUID.randomUUID(),
        new byte[NetworkConfig.SECRET_BYTES],
        InetAddress.getLoopbackAddress(),
        PortRange.ANY,
        Duration.ofSeconds(10),
        security);
  }

  @Override
  Network open() {
    return ucx().open(config(Security.TRUSTED));
  }
}
