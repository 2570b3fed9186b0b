package io.nccl4j.internal.machine;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.InvalidArgumentException;
import java.net.Inet4Address;
import java.net.Inet6Address;
import java.net.InetAddress;
import java.net.NetworkInterface;
import java.net.SocketException;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Addresses of this machine, of which only the loopback one is known for sure. */
@Tag("parallel")
class LocalAddressTest {
  private static Optional<InetAddress> wanted(String text) {
    return LocalAddress.wanted(Map.of(LocalAddress.VARIABLE, text));
  }

  private static List<NetworkInterface> interfaces() throws SocketException {
    return NetworkInterface.networkInterfaces().toList();
  }

  @Test
  void nothingIsWanted() {
    assertEquals(Optional.empty(), LocalAddress.wanted(Map.of()));
    assertEquals(Optional.empty(), wanted(" "));
  }

  @ParameterizedTest
  @ValueSource(strings = {"127.0.0.1", " 127.0.0.1 ", "127.0.0.0/8", "127.0.0.1/32", "127.1.2.3/9"})
  void addressesAndNetworksFit(String text) {
    assertEquals(InetAddress.ofLiteral("127.0.0.1"), wanted(text).orElseThrow());
  }

  @Test
  void interfacesFitByTheirWholeName() throws SocketException {
    for (NetworkInterface each : interfaces()) {
      if (each.getInterfaceAddresses().isEmpty()) {
        continue;
      }
      InetAddress found = wanted(each.getName()).orElseThrow();
      assertEquals(each, NetworkInterface.getByInetAddress(found));
      List<InetAddress> all = each.inetAddresses().toList();
      assertTrue(
          found instanceof Inet4Address || all.stream().allMatch(Inet6Address.class::isInstance));
      assertTrue(
          !found.isLinkLocalAddress() || all.stream().allMatch(InetAddress::isLinkLocalAddress));
      assertThrows(InvalidArgumentException.class, () -> wanted(each.getName() + "x"));
    }
  }

  @Test
  void allOwnAddressesFit() throws SocketException {
    for (NetworkInterface each : interfaces()) {
      for (InetAddress address : each.inetAddresses().toList()) {
        assertEquals(address, wanted(address.getHostAddress()).orElseThrow());
      }
    }
  }

  /** Of both versions, none is in the network of the other. */
  @Test
  void versionsAreToldApart() throws SocketException {
    assertTrue(wanted("0.0.0.0/0").orElseThrow() instanceof Inet4Address);
    boolean six =
        interfaces().stream()
            .flatMap(NetworkInterface::inetAddresses)
            .anyMatch(Inet6Address.class::isInstance);
    if (six) {
      assertTrue(wanted("::/0").orElseThrow() instanceof Inet6Address);
    } else {
      assertThrows(InvalidArgumentException.class, () -> wanted("::/0"));
    }
  }

  @ParameterizedTest
  @CsvSource({
    "nosuch0",
    "192.0.2.99",
    "127.0.0.1/33",
    "127.0.0.1/-1",
    "127.0.0.1/",
    "127.0.0.1/x",
    "/8",
    "::1/129",
    "127.0.0.1/8/8",
    "1270.0.0.1",
    "localhost"
  })
  void whatDoesNotFitIsNamed(String text) {
    String message = assertThrows(InvalidArgumentException.class, () -> wanted(text)).getMessage();
    for (String part :
        List.of(
            "NCCL4J_NETWORK_INTERFACE is '" + text + "', and no interface of",
            "it has ",
            "127.0.0.1",
            "name an interface (eth0)")) {
      assertTrue(message.contains(part), message);
    }
  }

  @Test
  void theDefaultRouteStartsHere() throws SocketException {
    InetAddress address = LocalAddress.ofDefaultRoute();
    assertFalse(address.isAnyLocalAddress());
    assertNotNull(NetworkInterface.getByInetAddress(address), address::toString);
    boolean others =
        interfaces().stream()
            .flatMap(NetworkInterface::inetAddresses)
            .anyMatch(one -> !one.isLoopbackAddress() && !one.isLinkLocalAddress());
    assertEquals(!others, address.isLoopbackAddress());
  }
}
