package io.nccl4j.internal.net.netty;

import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.internal.net.Network;
import io.nccl4j.internal.net.NetworkConfig;
import io.nccl4j.internal.net.NetworkConfig.PortRange;
import io.nccl4j.internal.net.NetworkConfig.Security;
import io.nccl4j.internal.net.Port;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.net.InetAddress;
import java.time.Duration;
import java.util.UUID;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * Two ports that dial each other at once use one of the connections and forget the other. While a
 * port is still making a connection, each poll looks after it, which takes time.
 */
@Tag("parallel")
final class DialedByBothTest {
  private static final long SMALL = 1L << Port.KIND_SHIFT;
  private static final long PATIENCE_NANOS = 20_000_000_000L;

  @ParameterizedTest
  @EnumSource(names = {"AUTH", "TLS"})
  void oneConnectionIsLeft(Security security) {
    NetworkConfig config =
        new NetworkConfig(
            UUID.randomUUID(),
            new byte[32],
            InetAddress.getLoopbackAddress(),
            PortRange.ANY,
            Duration.ofMinutes(10),
            security);
    try (Network network = new NettyProvider().open(config);
        NettyPort one = (NettyPort) network.newPort();
        NettyPort other = (NettyPort) network.newPort();
        Arena arena = Arena.ofConfined()) {
      one.addPeer(0, other.address());
      other.addPeer(0, one.address());
      MemorySegment message = arena.allocate(8);
      one.post(0, SMALL, message, 0, 8);
      other.post(0, SMALL, message, 0, 8);
      int[] arrived = new int[2];
      long start = System.nanoTime();
      while (arrived[0] == 0 || arrived[1] == 0 || !one.isSettled() || !other.isSettled()) {
        one.poll((peer, tag, memory, offset, bytes) -> arrived[0]++);
        other.poll((peer, tag, memory, offset, bytes) -> arrived[1]++);
        assertTrue(
            System.nanoTime() - start < PATIENCE_NANOS,
            () ->
                arrived[0]
                    + " and "
                    + arrived[1]
                    + " messages: "
                    + one.isSettled()
                    + ", "
                    + other.isSettled());
      }
    }
  }
}
