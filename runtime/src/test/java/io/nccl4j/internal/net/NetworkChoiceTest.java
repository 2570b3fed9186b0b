package io.nccl4j.internal.net;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.internal.net.NetworkConfig.PortRange;
import io.nccl4j.internal.net.NetworkConfig.Security;
import java.util.Map;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Variables that choose a network and its ports. */
@Tag("parallel")
class NetworkChoiceTest {
  private static String provider(String text) {
    return NetworkChoice.provider(Map.of("NCCL4J_NETWORK", text)).name();
  }

  private static PortRange ports(String text) {
    return NetworkChoice.ports(Map.of("NCCL4J_NETWORK_PORTS", text));
  }

  private static void fails(Class<? extends NcclException> type, String part, Executable choice) {
    String message = assertThrows(type, choice).getMessage();
    assertTrue(message.contains(part), message);
  }

  @ParameterizedTest
  @ValueSource(strings = {"auto", "", " ", " netty "})
  void anEngineIsFound(String text) {
    assertEquals("netty", provider(text));
  }

  @Test
  void withoutASettingOneIsFound() {
    assertEquals("netty", NetworkChoice.provider(Map.of()).name());
    assertEquals(PortRange.ANY, NetworkChoice.ports(Map.of()));
  }

  @Test
  void whatAsksNobodyWhoTheyAreIsUsedOnlyIfItIsNamed() {
    assertEquals("ucx", provider("ucx"));
    assertEquals(
        "netty", NetworkChoice.provider(Map.of("NCCL4J_NETWORK_SECURITY", "trusted")).name());
  }

  @Test
  void otherEnginesAreNamed() {
    fails(
        InvalidArgumentException.class,
        "NCCL4J_NETWORK is 'pigeon'; use auto, off or ",
        () -> provider("pigeon"));
    fails(
        InvalidUsageException.class,
        "the ranks are on several hosts, and NCCL4J_NETWORK is off; unset NCCL4J_NETWORK",
        () -> provider("off"));
  }

  @ParameterizedTest
  @CsvSource({"auth, AUTH", "' tls ', TLS", "trusted, TRUSTED", "'', AUTH"})
  void whatProtectsIsUnderstood(String text, Security security) {
    assertEquals(security, NetworkChoice.security(Map.of("NCCL4J_NETWORK_SECURITY", text)));
    assertEquals(Security.AUTH, NetworkChoice.security(Map.of()));
  }

  @ParameterizedTest
  @ValueSource(strings = {"TLS", "trust", "none", "tls,auth"})
  void whatProtectsNothingIsNamed(String text) {
    fails(
        InvalidArgumentException.class,
        "NCCL4J_NETWORK_SECURITY is '" + text + "'; use auth, the default, tls or trusted",
        () -> NetworkChoice.security(Map.of("NCCL4J_NETWORK_SECURITY", text)));
  }

  @ParameterizedTest
  @CsvSource({
    "7000-7063, 7000, 7063",
    "' 7000 ', 7000, 7000",
    "1-65535, 1, 65535",
    "0, 0, 0",
    "'', 0, 0"
  })
  void portsAreUnderstood(String text, int first, int last) {
    assertEquals(new PortRange(first, last), ports(text));
  }

  @ParameterizedTest
  @ValueSource(
      strings = {"7063-7000", "65536", "1-65536", "0-5", "-5", "5-", "x", "7000,7001", "123456"})
  void whatIsNoRangeIsNamed(String text) {
    fails(
        InvalidArgumentException.class,
        "NCCL4J_NETWORK_PORTS is '" + text + "'; name a range of TCP ports between 1 and 65535",
        () -> ports(text));
  }
}
