package io.nccl4j;

import io.nccl4j.internal.host.HostSpan;
import io.nccl4j.internal.net.FakeNetwork;
import io.nccl4j.internal.net.Network;
import io.nccl4j.internal.net.NetworkConfig;
import io.nccl4j.internal.net.NetworkConfig.Security;
import io.nccl4j.internal.net.NetworkProvider;
import io.nccl4j.internal.net.Port;
import io.nccl4j.internal.schedule.Creation;
import io.nccl4j.internal.span.Hosts;
import io.nccl4j.internal.span.Span;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.ServiceLoader;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.stream.IntStream;

/** Ranks of this process that take each other for ranks of several hosts. */
public final class SpanRanks {
  private SpanRanks() {}

  /**
   * Joins as all ranks.
   *
   * @param hostOf the host of each
   */
  public static Communicators join(int[] hostOf, CommunicatorConfig config, Network network) {
    int nranks = hostOf.length;
    int[] processors = IntStream.range(0, nranks).map(r -> nranks).toArray();
    Hosts hosts = new Hosts(hostOf, new int[nranks], processors);
    List<Port> ports = IntStream.range(0, nranks).mapToObj(r -> network.newPort()).toList();
    List<byte[]> addresses = ports.stream().map(Port::address).toList();
    Map<Integer, UniqueId> ids = new HashMap<>();
    for (int h = 0; h < hosts.count(); h++) {
      ids.put(h, UniqueId.create(Backend.HOST));
    }
    UUID name = UUID.randomUUID();
    List<CompletableFuture<Communicator>> joining = new ArrayList<>();
    for (int r = 0; r < nranks; r++) {
      int rank = r;
      Span span =
          new Span(
              hosts, rank, network, ports.get(rank), addresses, config.closeTimeout().toNanos());
      joining.add(
          CompletableFuture.supplyAsync(
              () ->
                  HostSpan.attach(
                      Device.get(Backend.HOST, rank),
                      nranks,
                      ids.get(hosts.of(rank)),
                      hosts.ranks(hosts.of(rank)),
                      rank,
                      config,
                      span,
                      name),
              task -> Thread.ofPlatform().name("join-" + rank).start(task)));
    }
    try {
      return new Communicators(
          Creation.all("initAll", () -> joining.stream().map(CompletableFuture::join).toList()));
    } catch (CompletionException e) {
      throw e.getCause() instanceof NcclException cause ? cause : e;
    }
  }

  /** A network in memory whose scheduler is driven by whoever waits. */
  public static Network inMemory(long seed) {
    return new FakeNetwork(seed, true);
  }

  /** An engine over loopback. */
  public static Network network(String name, Security security) {
    return ServiceLoader.load(NetworkProvider.class).stream()
        .map(ServiceLoader.Provider::get)
        .filter(provider -> provider.name().equals(name))
        .findFirst()
        .orElseThrow()
        .open(
            new NetworkConfig(
                UUID.randomUUID(),
                UUID.randomUUID().toString().getBytes(StandardCharsets.US_ASCII),
                InetAddress.getLoopbackAddress(),
                NetworkConfig.PortRange.ANY,
                Duration.ofSeconds(5),
                security));
  }
}
