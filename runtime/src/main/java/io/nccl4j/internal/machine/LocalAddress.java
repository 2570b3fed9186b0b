package io.nccl4j.internal.machine;

import io.nccl4j.InvalidArgumentException;
import java.io.UncheckedIOException;
import java.net.DatagramSocket;
import java.net.Inet4Address;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.NetworkInterface;
import java.net.SocketException;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;

/** Under which address other machines reach this one. */
public final class LocalAddress {
  /** The variable that names an interface, an address, or the network that an address is in. */
  public static final String VARIABLE = "NCCL4J_NETWORK_INTERFACE";

  private static final Logger LOG = LogManager.getLogger(LocalAddress.class);

  /** Set aside for documents: nothing is sent there. */
  private static final InetSocketAddress FAR = new InetSocketAddress("192.0.2.1", 9);

  /** Other machines need more than the address to reach one that is valid on a link only. */
  private static final Comparator<InetAddress> BEST_FIRST =
      Comparator.comparing(InetAddress::isLinkLocalAddress)
          .thenComparing(address -> !(address instanceof Inet4Address));

  private LocalAddress() {}

  /**
   * The address that the user asked for.
   *
   * @throws InvalidArgumentException if no interface of this machine has it
   */
  public static Optional<InetAddress> wanted(Map<String, String> environment) {
    String text = environment.get(VARIABLE);
    if (text == null || text.isBlank()) {
      return Optional.empty();
    }
    List<InetAddress> all = all();
    return Optional.of(
        all.stream()
            .filter(address -> fits(text.strip(), address))
            .min(BEST_FIRST)
            .orElseThrow(
                () ->
                    new InvalidArgumentException(
                        VARIABLE
                            + " is '"
                            + text
                            + "', and no interface of "
                            + Machine.hostName()
                            + " fits; it has "
                            + words(all),
                        "name an interface (eth0), an address (10.0.0.7) or a network"
                            + " (10.0.0.0/16)")));
  }

  /** The address from which this machine reaches others; the loopback one if it reaches none. */
  public static InetAddress ofDefaultRoute() {
    try (DatagramSocket socket = new DatagramSocket()) {
      socket.connect(FAR);
      InetAddress local = socket.getLocalAddress();
      if (!local.isAnyLocalAddress()) {
        return local;
      }
    } catch (SocketException | UncheckedIOException noRoute) {
      LOG.debug("there is no default route", noRoute);
    }
    return all().stream()
        .filter(address -> !address.isLoopbackAddress() && !address.isLinkLocalAddress())
        .min(BEST_FIRST)
        .orElse(InetAddress.getLoopbackAddress());
  }

  /** The interface that has an address of this machine; empty if none has it. */
  public static String interfaceOf(InetAddress address) {
    try {
      NetworkInterface found = NetworkInterface.getByInetAddress(address);
      return found == null ? "" : found.getName();
    } catch (SocketException e) {
      LOG.debug("the interface of {} is not known", address, e);
      return "";
    }
  }

  private static List<InetAddress> all() {
    try {
      return NetworkInterface.networkInterfaces().flatMap(NetworkInterface::inetAddresses).toList();
    } catch (SocketException e) {
      LOG.debug("the interfaces cannot be listed", e);
      return List.of();
    }
  }

  private static String words(List<InetAddress> addresses) {
    return String.join(", ", addresses.stream().map(InetAddress::getHostAddress).toList());
  }

  private static boolean fits(String wanted, InetAddress address) {
    try {
      if (interfaceOf(address).equals(wanted)) {
        return true;
      }
      int slash = wanted.indexOf('/');
      String number = slash < 0 ? wanted : wanted.substring(0, slash);
      byte[] network = InetAddress.ofLiteral(number).getAddress();
      int bits =
          slash < 0 ? network.length * Byte.SIZE : Integer.parseInt(wanted.substring(slash + 1));
      return sharePrefix(network, address.getAddress(), bits);
    } catch (IllegalArgumentException noNumber) {
      return false;
    }
  }

  private static boolean sharePrefix(byte[] a, byte[] b, int bits) {
    if (a.length != b.length || bits < 0 || bits > a.length * Byte.SIZE) {
      return false;
    }
    for (int i = 0; i < bits; i++) {
      int mask = 0x80 >>> i % Byte.SIZE;
      if ((a[i / Byte.SIZE] & mask) != (b[i / Byte.SIZE] & mask)) {
        return false;
      }
    }
    return true;
  }
}
