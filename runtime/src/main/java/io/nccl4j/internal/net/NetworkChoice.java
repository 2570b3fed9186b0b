package io.nccl4j.internal.net;

import io.nccl4j.BackendUnavailableException;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.internal.net.NetworkConfig.PortRange;
import io.nccl4j.internal.net.NetworkConfig.Security;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.ServiceLoader;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Which engine carries bytes between machines, where and how safely, as the environment says. */
public final class NetworkChoice {
  private static final String NETWORK = "NCCL4J_NETWORK";
  private static final String PORTS = "NCCL4J_NETWORK_PORTS";
  private static final String SECURITY = "NCCL4J_NETWORK_SECURITY";
  private static final String AUTO = "auto";
  private static final String OFF = "off";
  private static final Pattern RANGE = Pattern.compile("(\\d{1,5})(?:-(\\d{1,5}))?");

  private NetworkChoice() {}

  /**
   * The engine.
   *
   * @throws InvalidUsageException if the network is off
   * @throws InvalidArgumentException if there is no engine of that name
   */
  public static NetworkProvider provider(Map<String, String> environment) {
    String text = environment.getOrDefault(NETWORK, "").strip();
    String wanted = text.isEmpty() ? AUTO : text;
    if (wanted.equals(OFF)) {
      throw new InvalidUsageException(
          "the ranks are on several hosts, and " + NETWORK + " is " + OFF,
          "unset " + NETWORK + ", or keep to one machine");
    }
    List<NetworkProvider> all =
        ServiceLoader.load(NetworkProvider.class, NetworkProvider.class.getClassLoader()).stream()
            .map(ServiceLoader.Provider::get)
            .toList();
    if (all.isEmpty()) {
      throw new BackendUnavailableException(
          "this application has no network", "use all of the nccl4j-runtime jar");
    }
    return all.stream()
        .filter(provider -> wanted.equals(AUTO) || wanted.equals(provider.name()))
        .findFirst()
        .orElseThrow(
            () ->
                new InvalidArgumentException(
                    NETWORK + " is '" + wanted + "'",
                    "use " + AUTO + ", " + OFF + " or " + names(all)));
  }

  private static String names(List<NetworkProvider> all) {
    return String.join(", ", all.stream().map(NetworkProvider::name).toList());
  }

  /**
   * The TCP ports to listen at.
   *
   * @throws InvalidArgumentException if they are no range
   */
  public static PortRange ports(Map<String, String> environment) {
    String text = environment.getOrDefault(PORTS, "").strip();
    if (text.isEmpty()) {
      return PortRange.ANY;
    }
    Matcher range = RANGE.matcher(text);
    try {
      if (range.matches()) {
        int first = Integer.parseInt(range.group(1));
        String last = range.group(2);
        return new PortRange(first, last == null ? first : Integer.parseInt(last));
      }
    } catch (IllegalArgumentException e) {
      throw (InvalidArgumentException) wrongPorts(text).causedBy(e);
    }
    throw wrongPorts(text);
  }

  /**
   * What protects what goes over the network.
   *
   * @throws InvalidArgumentException if it is none of those there are
   */
  public static Security security(Map<String, String> environment) {
    String text = environment.getOrDefault(SECURITY, "").strip();
    if (text.isEmpty()) {
      return Security.AUTH;
    }
    return Arrays.stream(Security.values())
        .filter(one -> one.toString().equals(text))
        .findFirst()
        .orElseThrow(
            () ->
                new InvalidArgumentException(
                    SECURITY + " is '" + text + "'",
                    "use "
                        + Security.AUTH
                        + ", the default, "
                        + Security.TLS
                        + " or "
                        + Security.TRUSTED));
  }

  private static InvalidArgumentException wrongPorts(String text) {
    return new InvalidArgumentException(
        PORTS + " is '" + text + "'", "name a range of TCP ports between 1 and 65535: 7000-7063");
  }
}
