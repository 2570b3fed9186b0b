package io.nccl4j;

import io.nccl4j.internal.host.HostSpan;
import io.nccl4j.internal.net.FakeNetwork;
import io.nccl4j.internal.net.Port;
import io.nccl4j.internal.span.Hosts;
import io.nccl4j.internal.span.Span;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.IntStream;

/** Ranks of this process that take each other for ranks of several hosts. */
public final class SpanRanks {
  private SpanRanks() {}

  /**
   * Communicators over a network in memory.
   *
   * @param hostOf the host of each rank
   */
  public static Communicators create(int[] hostOf, CommunicatorConfig config, long seed) {
    Hosts hosts = new Hosts(hostOf);
    int nranks = hosts.nranks();
    FakeNetwork network = new FakeNetwork(seed);
    Thread.ofPlatform()
        .daemon()
        .name("fake-network")
        .start(
            () -> {
              while (network.step()) {
                LockSupport.parkNanos(1_000);
              }
            });
    List<Port> ports = IntStream.range(0, nranks).mapToObj(r -> network.newPort()).toList();
    List<byte[]> addresses = ports.stream().map(Port::address).toList();
    Map<Integer, UniqueId> ids = new HashMap<>();
    for (int h = 0; h < hosts.count(); h++) {
      ids.put(h, UniqueId.create(Backend.HOST));
    }
    List<CompletableFuture<Communicator>> joining = new ArrayList<>();
    for (int r = 0; r < nranks; r++) {
      int rank = r;
      Span span =
          new Span(hosts, rank, ports.get(rank), addresses, config.closeTimeout().toNanos());
      CompletableFuture<Communicator> joined = new CompletableFuture<>();
      joining.add(joined);
      Thread.ofPlatform()
          .start(
              () -> {
                try {
                  joined.complete(
                      HostSpan.attach(
                          Device.get(Backend.HOST, rank),
                          nranks,
                          ids.get(hosts.of(rank)),
                          hosts.ranks(hosts.of(rank)),
                          rank,
                          config,
                          span));
                } catch (Throwable e) {
                  joined.completeExceptionally(e);
                }
              });
    }
    return new Communicators(joining.stream().map(CompletableFuture::join).toList());
  }
}
