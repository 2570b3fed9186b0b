package io.nccl4j.internal.net;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.foreign.Arena;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;

final class NetworkDaemonTest {
  private static final long SMALL = 1L << Port.KIND_SHIFT;

  @Test
  void pollsWhatNobodyPolls() throws Exception {
    FakeNetwork network = new FakeNetwork(3);
    CountDownLatch landed = new CountDownLatch(1);
    AtomicInteger failures = new AtomicInteger();
    NetworkDaemon daemon = new NetworkDaemon(cause -> failures.incrementAndGet());
    try (Port from = network.newPort();
        Port to = network.newPort();
        Arena arena = Arena.ofConfined()) {
      from.addPeer(1, to.address());
      to.addPeer(0, from.address());
      from.post(1, SMALL, arena.allocate(8), 0, 8);
      while (!from.isFlushed()) {
        network.step();
      }
      PortCell cell = new PortCell(to, (peer, tag, memory, offset, bytes) -> landed.countDown());
      daemon.add(cell);
      assertTrue(landed.await(20, TimeUnit.SECONDS), "the daemon polls");
      daemon.remove(cell);
      own(cell);
    }
    assertEquals(0, failures.get());
  }

  @Test
  void leavesAPortToItsOwner() throws Exception {
    FakeNetwork network = new FakeNetwork(4);
    AtomicInteger landed = new AtomicInteger();
    NetworkDaemon daemon = new NetworkDaemon(cause -> landed.addAndGet(1000));
    try (Port from = network.newPort();
        Port to = network.newPort();
        Arena arena = Arena.ofConfined()) {
      from.addPeer(1, to.address());
      to.addPeer(0, from.address());
      PortCell cell = new PortCell(to, (peer, tag, memory, offset, b) -> landed.incrementAndGet());
      own(cell);
      assertFalse(cell.tryOwn());
      daemon.add(cell);
      from.post(1, SMALL, arena.allocate(8), 0, 8);
      while (!from.isFlushed()) {
        network.step();
      }
      Thread.sleep(50);
      assertEquals(0, landed.get(), "it has an owner");
      assertEquals(1, cell.poll());
      assertEquals(1, landed.get());
      daemon.remove(cell);
    }
  }

  private static void own(PortCell cell) {
    while (!cell.tryOwn()) {
      Thread.onSpinWait();
    }
  }
}
