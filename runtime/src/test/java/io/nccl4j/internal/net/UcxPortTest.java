package io.nccl4j.internal.net;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.bindings.Ucp;
import io.nccl4j.internal.net.NetworkConfig.PortRange;
import io.nccl4j.internal.net.NetworkConfig.Security;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.ServiceLoader;
import java.util.UUID;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

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

  @ParameterizedTest
  @EnumSource(names = "TRUSTED", mode = EnumSource.Mode.EXCLUDE)
  void networksThatAreNotTrustedAreRefused(Security security) {
    String message =
        assertThrows(InvalidUsageException.class, () -> ucx().open(config(security))).getMessage();
    assertTrue(
        message.contains("NCCL4J_NETWORK_SECURITY is " + security)
            && message.contains("set NCCL4J_NETWORK_SECURITY=trusted"),
        message);
  }

  @Test
  void addressesOfOtherEnginesAreRefused() {
    try (Network network = open();
        Port port = network.newPort()) {
      String message =
          assertThrows(InvalidArgumentException.class, () -> port.addPeer(0, new byte[22]))
              .getMessage();
      assertTrue(message.contains("set NCCL4J_NETWORK to the same"), message);
    }
  }

  /** Messages that come before their sender has a number are kept, in order. */
  @Test
  void messagesMayComeBeforeTheirSenderIsKnown() {
    try (Network network = open();
        Port from = network.newPort();
        Port to = network.newPort();
        Arena arena = Arena.ofConfined()) {
      from.addPeer(0, to.address());
      MemorySegment memory = arena.allocate(8);
      List<Long> tags = new ArrayList<>();
      Port.Landing landing = (peer, tag, segment, offset, bytes) -> tags.add(tag);
      for (long tag = 0; tag < 40; tag++) {
        from.post(0, 1L << Port.KIND_SHIFT | tag, memory, 0, 8);
        int ignored = from.poll(landing) + to.poll(landing);
      }
      assertEquals(List.of(), tags);
      to.addPeer(7, from.address());
      long start = System.nanoTime();
      while (tags.size() < 40 && System.nanoTime() - start < 20_000_000_000L) {
        int ignored = from.poll(landing) + to.poll(landing);
      }
      for (int i = 0; i < 40; i++) {
        assertEquals(1L << Port.KIND_SHIFT | i, tags.get(i));
      }
      assertEquals(0, to.failures());
    }
  }

  /** What is read of UCX's structures, asked of its headers, where they and a compiler are. */
  @Test
  void structuresAreThoseOfTheHeaders(@TempDir Path folder) throws Exception {
    Assumptions.assumeTrue(
        Files.exists(Path.of("/usr/include/ucp/api/ucp.h")), "UCX's headers are not installed");
    Assumptions.assumeTrue(output("cc", "--version").contains("cc"), "there is no C compiler");
    Path source = folder.resolve("offsets.c");
    Files.writeString(
        source,
        """
        #include <stddef.h>
        #include <stdio.h>
        #include <ucp/api/ucp.h>
        #define AT(s, f) printf("%zu ", offsetof(s, f))
        int main(void) {
          AT(ucp_params_t, features);
          AT(ucp_worker_params_t, thread_mode);
          AT(ucp_am_handler_param_t, id); AT(ucp_am_handler_param_t, flags);
          AT(ucp_am_handler_param_t, cb);
          AT(ucp_ep_params_t, address); AT(ucp_ep_params_t, err_mode);
          AT(ucp_ep_params_t, err_handler); AT(ucp_ep_params_t, user_data);
          AT(ucp_request_param_t, flags); AT(ucp_request_param_t, memory_type);
          printf("%d %d %d %d %d %d %d %d %d\\n", UCP_FEATURE_AM, UCS_THREAD_MODE_SERIALIZED,
              UCP_AM_FLAG_WHOLE_MSG, UCP_ERR_HANDLING_MODE_PEER, UCP_OP_ATTR_FIELD_FLAGS,
              UCP_OP_ATTR_FIELD_MEMORY_TYPE, UCP_AM_SEND_FLAG_EAGER, UCP_AM_RECV_ATTR_FLAG_RNDV,
              UCP_EP_CLOSE_FLAG_FORCE);
          return 0;
        }
        """);
    Path program = folder.resolve("offsets");
    assertEquals("", output("cc", "-o", program.toString(), source.toString()));
    assertEquals(
        "8 8 8 12 16 8 16 24 40 4 48 64 1 1 1 16 64 2 131072 1",
        output(program.toString()).strip());
  }

  /** What a command prints; the reason if there is no such command. */
  private static String output(String... command) throws InterruptedException {
    try {
      Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
      String text = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
      int ignored = process.waitFor();
      return text;
    } catch (IOException e) {
      return String.valueOf(e.getMessage());
    }
  }

  @Override
  Network open() {
    return ucx().open(config(Security.TRUSTED));
  }
}
