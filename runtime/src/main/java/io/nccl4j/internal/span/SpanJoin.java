package io.nccl4j.internal.span;

import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Device;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.bootstrap.Joiner;
import io.nccl4j.internal.bootstrap.NetworkMeeting;
import io.nccl4j.internal.bootstrap.Rendezvous;
import io.nccl4j.internal.host.HostSpan;
import io.nccl4j.internal.host.SpanProvider;
import io.nccl4j.internal.machine.LocalAddress;
import io.nccl4j.internal.machine.Machine;
import io.nccl4j.internal.net.Network;
import io.nccl4j.internal.net.NetworkChoice;
import io.nccl4j.internal.net.NetworkConfig;
import io.nccl4j.internal.net.NetworkConfig.Security;
import io.nccl4j.internal.net.Port;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.function.Function;
import java.util.stream.IntStream;

/**
 * One rank's way into a communicator over several hosts.
 *
 * <p>All ranks meet over the network, and learn who is on which host and where each one's port is.
 * Then those of a host meet there, by an id that the lowest of them makes, as if they were all.
 * What goes wrong anywhere ends it for all: nobody goes on before all have what they need.
 */
public final class SpanJoin implements SpanProvider {
  /** What a rank tells all others of itself. */
  private record Brought(
      ByteBuffer host, UUID boot, int processors, InetAddress address, byte[] port) {
    static byte[] encode(byte[] host, InetAddress address, byte[] port) {
      UUID boot = Machine.bootId();
      byte[] ip = address.getAddress();
      return ByteBuffer.allocate(
              2 + host.length + 2 * Long.BYTES + Integer.BYTES + ip.length + port.length)
          .put((byte) host.length)
          .put(host)
          .putLong(boot.getMostSignificantBits())
          .putLong(boot.getLeastSignificantBits())
          .putInt(Machine.allProcessors())
          .put((byte) ip.length)
          .put(ip)
          .put(port)
          .array();
    }

    /** What ranks of one machine have in common. Without a boot id, each host counts as one. */
    Object machine() {
      return boot.equals(Machine.NO_BOOT) ? host : boot;
    }

    static Brought decode(byte[] bytes) {
      ByteBuffer in = ByteBuffer.wrap(bytes);
      byte[] host = new byte[in.get()];
      in.get(host);
      UUID boot = new UUID(in.getLong(), in.getLong());
      int processors = in.getInt();
      byte[] ip = new byte[in.get()];
      in.get(ip);
      byte[] port = new byte[in.remaining()];
      in.get(port);
      try {
        return new Brought(
            ByteBuffer.wrap(host), boot, processors, InetAddress.getByAddress(ip), port);
      } catch (UnknownHostException e) {
        throw new IllegalArgumentException("an address of " + ip.length + " bytes", e);
      }
    }
  }

  /** For the service loader. */
  public SpanJoin() {}

  @Override
  public Communicator join(
      Device device, int nranks, UniqueId id, int rank, CommunicatorConfig config) {
    try (NetworkMeeting meeting = NetworkMeeting.connect(id, rank, config.initTimeout())) {
      try {
        Communicator communicator = join(meeting, device, nranks, rank, config);
        agree(meeting, communicator);
        return communicator;
      } catch (RuntimeException | Error e) {
        meeting.refuse(e);
        throw e;
      }
    }
  }

  private static void agree(NetworkMeeting meeting, Communicator communicator) {
    try {
      meeting.agree();
    } catch (RuntimeException | Error e) {
      communicator.abort(e);
      communicator.close();
      throw e;
    }
  }

  private static Communicator join(
      NetworkMeeting meeting, Device device, int nranks, int rank, CommunicatorConfig config) {
    Map<String, String> environment = System.getenv();
    Security security = NetworkChoice.security(environment);
    InetAddress address = LocalAddress.wanted(environment).orElseGet(meeting::local);
    Network network =
        NetworkChoice.provider(environment)
            .open(
                new NetworkConfig(
                    meeting.name(),
                    meeting.secretFor("network"),
                    address,
                    NetworkChoice.ports(environment),
                    config.initTimeout(),
                    security));
    Port port = network.newPort();
    Span span = null;
    try {
      Joiner joiner = HostSpan.joiner(rank, nranks).withSecurity(security.toString());
      byte[] key = meeting.hostKey(joiner.process());
      List<Brought> all = new ArrayList<>();
      byte[] own = Brought.encode(key, address, port.address());
      for (byte[] one : meeting.join(joiner, own)) {
        all.add(Brought.decode(one));
      }
      Hosts hosts = hosts(all);
      requireReachable(hosts, all);
      UniqueId here = idOfHost(meeting, hosts, rank);
      if (hosts.count() == 1) {
        port.close();
        return HostSpan.attach(device, nranks, here, rank, config);
      }
      List<byte[]> addresses = all.stream().map(Brought::port).toList();
      span = new Span(hosts, rank, network, port, addresses, config.closeTimeout().toNanos());
      return HostSpan.attach(
          device, nranks, here, hosts.ranks(hosts.of(rank)), rank, config, span, meeting.name());
    } catch (RuntimeException | Error e) {
      if (span == null) {
        port.close();
      }
      throw e;
    }
  }

  private static Hosts hosts(List<Brought> all) {
    return new Hosts(
        numbers(all, Brought::host),
        numbers(all, Brought::machine),
        all.stream().mapToInt(Brought::processors).toArray());
  }

  /** A number for each rank, the same for those that brought the same. */
  private static int[] numbers(List<Brought> all, Function<Brought, Object> what) {
    List<Object> known = all.stream().map(what).distinct().toList();
    return all.stream().map(what).mapToInt(known::indexOf).toArray();
  }

  /** Only this machine reaches its loopback address. */
  private static void requireReachable(Hosts hosts, List<Brought> all) {
    int[] loopback =
        IntStream.range(0, all.size())
            .filter(rank -> all.get(rank).address.isLoopbackAddress())
            .toArray();
    if (hosts.count() > 1 && loopback.length > 0 && loopback.length < all.size()) {
      throw new InvalidUsageException(
          "rank "
              + loopback[0]
              + " is at "
              + all.get(loopback[0]).address.getHostAddress()
              + ", where ranks of other hosts cannot reach it",
          "name the rendezvous by an address that all hosts reach, or set "
              + LocalAddress.VARIABLE);
    }
  }

  /** The lowest rank of each host makes it. What all share passes through the network. */
  private static UniqueId idOfHost(NetworkMeeting meeting, Hosts hosts, int rank) {
    int leader = hosts.leader(hosts.of(rank));
    byte[] own = leader == rank ? meeting.hide(Rendezvous.createUniqueId()) : new byte[0];
    return UniqueId.ofBytes(meeting.hide(meeting.share(own).get(leader)));
  }
}
