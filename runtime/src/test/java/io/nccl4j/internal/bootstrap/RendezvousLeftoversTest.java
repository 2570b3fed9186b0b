package io.nccl4j.internal.bootstrap;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.bindings.Descriptors;
import io.nccl4j.bindings.Libc;
import java.io.File;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Random;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.IntSupplier;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/**
 * What a rendezvous leaves in this process: no thread, and no descriptor. Nothing else may run
 * meanwhile.
 */
@Timeout(60)
class RendezvousLeftoversTest {
  private TestHeap heap;

  @BeforeEach
  void open() {
    Assumptions.assumeTrue(Libc.isAvailable(), Libc::unavailableReason);
    heap = new TestHeap();
  }

  @AfterEach
  void close() {
    if (heap != null) {
      heap.close();
    }
  }

  @Test
  void strangersDoNotHurt() throws Exception {
    int fds = descriptors();
    byte[] idBytes = Rendezvous.createUniqueId();
    RendezvousId id = RendezvousId.parse(idBytes);
    List<Integer> sockets = new ArrayList<>();
    long seed = System.nanoTime();
    System.out.println("seed " + seed);
    Random random = new Random(seed);
    // More half-open connections than the creator keeps, then garbage of many kinds.
    for (int i = 0; i < 100; i++) {
      sockets.add(RendezvousTest.connect(id));
    }
    CompletableFuture<Membership> rank0 =
        RendezvousTest.async(idBytes, heap.joiner(0, 2), RendezvousTest.LONG);
    for (int i = 0; i < 300; i++) {
      int socket = RendezvousTest.connect(id);
      RendezvousTest.send(
          socket,
          garbage(random, i % 6),
          i % 2 == 0 ? new int[] {heap.fd} : new int[] {heap.fd, heap.fd});
      if (i % 6 == 5) {
        RendezvousTest.send(
            socket, Session.plain(Session.JOIN, RendezvousTest.random(random, 150)), heap.fd);
        RendezvousTest.send(socket, RendezvousTest.random(random, 100));
      }
      if (i % 3 == 0) {
        sockets.add(socket);
      } else {
        Descriptors.close(socket);
      }
    }
    String name = HexFormat.of().formatHex(idBytes);
    try (ChildJvm child = ChildJvm.start(JoinMain.class, "join", name, 2, 30_000, 1)) {
      assertEquals(1, heap.checkPeers(rank0.get(30, TimeUnit.SECONDS)));
      child.expect("joined");
    }
    sockets.forEach(Descriptors::close);
    awaitFlat(fds, "descriptors", RendezvousLeftoversTest::descriptors);
  }

  private static byte[] garbage(Random random, int kind) {
    return switch (kind) {
      case 0 -> RendezvousTest.random(random, 1 + random.nextInt(600));
      case 1 ->
          Session.plain(
              (byte) random.nextInt(10), RendezvousTest.random(random, random.nextInt(99)));
      case 2 -> Session.plain(Session.HELLO, RendezvousTest.random(random, 36));
      case 3 -> Session.plain(Session.JOIN, RendezvousTest.random(random, 200));
      case 4 -> RendezvousTest.random(random, 60_000);
      default ->
          Session.plain(Session.HELLO, RendezvousTest.hello(RendezvousTest.random(random, 32)));
    };
  }

  private static int descriptors() {
    return new File("/proc/self/fd").list().length;
  }

  private static int threads() {
    return (int)
        Thread.getAllStackTraces().keySet().stream()
            .filter(thread -> thread.getName().startsWith("nccl4j-"))
            .count();
  }

  private static void awaitFlat(int before, String what, IntSupplier now) {
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(10);
    while (now.getAsInt() > before && System.nanoTime() < end) {
      RendezvousTest.sleep(20);
    }
    assertTrue(now.getAsInt() <= before, before + " " + what + ", now " + now.getAsInt());
  }

  @Test
  void manyRendezvousLeaveNothingBehind() throws Exception {
    // Unused ids of other tests go on being served.
    int threads = threads();
    heap.join(Rendezvous.createUniqueId(), 0, 1, RendezvousTest.LONG).close();
    awaitFlat(threads, "threads", RendezvousLeftoversTest::threads);
    int fds = descriptors();
    for (int i = 0; i < 200; i++) {
      byte[] id = Rendezvous.createUniqueId();
      Joiner other = new Joiner(1, 2, UUID.randomUUID(), 77, heap.fd, TestHeap.BYTES, -1);
      CompletableFuture<Membership> rank1 = RendezvousTest.async(id, other, RendezvousTest.LONG);
      Membership rank0 = heap.join(id, 0, 2, RendezvousTest.LONG);
      Descriptors.close(rank0.takeHeapFd(other.process()));
      rank0.close();
      rank1.get(10, TimeUnit.SECONDS).close();
    }
    awaitFlat(threads, "threads", RendezvousLeftoversTest::threads);
    awaitFlat(fds, "descriptors", RendezvousLeftoversTest::descriptors);
  }
}
