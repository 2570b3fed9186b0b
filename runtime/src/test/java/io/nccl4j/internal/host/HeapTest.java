package io.nccl4j.internal.host;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Stream;
import io.nccl4j.SystemErrorException;
import io.nccl4j.UniqueId;
import io.nccl4j.bindings.Descriptors;
import io.nccl4j.internal.bootstrap.ChildJvm;
import io.nccl4j.internal.host.memory.HostHeap;
import io.nccl4j.internal.host.memory.ProcessMemory;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;

/**
 * What is allocated is there and apart from everything else; what is freed goes back to the system.
 */
@Timeout(value = 60, threadMode = ThreadMode.SEPARATE_THREAD)
class HeapTest {
  private static final Device DEVICE = Device.get(Backend.HOST, 0);

  private static long backedBytes() {
    long ignored = ProcessMemory.self().heap().allocatedBytes();
    return Descriptors.fstat(ProcessMemory.self().heap().fd()).allocatedBytes();
  }

  private record Filled(DeviceBuffer buffer, byte value) {
    static Filled of(int bytes, byte value) {
      DeviceBuffer buffer = DEVICE.allocate(bytes);
      byte[] values = new byte[bytes];
      Arrays.fill(values, value);
      buffer.copyFrom(values);
      return new Filled(buffer, value);
    }

    void close() {
      for (byte found : buffer.toBytes()) {
        assertEquals(value, found);
      }
      buffer.close();
    }
  }

  @Test
  void randomBuffersStayApartAndTheirMemoryGoesBack() {
    long seed = new Random().nextLong();
    System.out.println("seed " + seed);
    Random random = new Random(seed);
    long before = ProcessMemory.self().heap().allocatedBytes();
    long backed = backedBytes();
    List<Filled> buffers = new ArrayList<>();
    long most = 0;
    for (int i = 0; i < 1000; i++) {
      if (buffers.size() > 40 || !buffers.isEmpty() && random.nextInt(5) < 2) {
        buffers.remove(random.nextInt(buffers.size())).close();
      } else {
        int bytes = random.nextInt(10) == 0 ? random.nextInt(5 << 20) : random.nextInt(20_000);
        buffers.add(Filled.of(bytes, (byte) random.nextInt()));
      }
      most = Math.max(most, backedBytes());
    }
    assertTrue(most > backed);
    buffers.forEach(Filled::close);
    assertTrue(ProcessMemory.self().heap().allocatedBytes() <= before);
    assertTrue(backedBytes() <= backed);
  }

  @Test
  void buffersOfOtherThreadsStayApart() throws Exception {
    long before = ProcessMemory.self().heap().allocatedBytes();
    try (HostRanks ranks = new HostRanks(4, 64)) {
      ranks.run(
          rank -> {
            Random random = new Random(rank);
            List<Filled> own = new ArrayList<>();
            for (int i = 0; i < 300; i++) {
              own.add(Filled.of(random.nextInt(30_000), (byte) rank));
              if (own.size() > 10) {
                own.remove(random.nextInt(own.size())).close();
              }
            }
            own.forEach(Filled::close);
          });
    }
    assertTrue(ProcessMemory.self().heap().allocatedBytes() <= before);
  }

  @Test
  void moreThanThereIsIsRefusedAndTakesNothing() {
    HostHeap heap = ProcessMemory.self().heap();
    long before = heap.allocatedBytes();
    long backed = backedBytes();
    for (long bytes : new long[] {heap.size(), heap.size() + 1, 1L << 60, Long.MAX_VALUE}) {
      SystemErrorException e =
          assertThrows(SystemErrorException.class, () -> DEVICE.allocate(bytes));
      assertTrue(e.getMessage().contains(Long.toString(bytes)), e.getMessage());
    }
    assertTrue(heap.allocatedBytes() <= before);
    assertTrue(backedBytes() <= backed);
    try (DeviceBuffer buffer = DEVICE.allocate(0)) {
      assertEquals(0, buffer.byteSize());
    }
  }

  private static void live(int i) throws Exception {
    int nranks = 1 + i % 3;
    try (HostRanks ranks = new HostRanks(nranks, 100_000)) {
      ranks.run(
          rank -> {
            ranks.sum(rank, i % 2 == 0 ? 3 : 20_000);
            ranks.streams.get(rank).synchronize();
            if (i % 4 == 0) {
              Communicator half = ranks.get(rank).split(rank % 2, 0);
              half.barrier(ranks.streams.get(rank));
              ranks.streams.get(rank).synchronize();
              half.close();
            }
          });
      if (i % 5 == 0) {
        ranks.get(0).abort();
      }
    }
  }

  @Test
  void twoHundredCommunicatorsOfThreadsLeaveNothing() throws Exception {
    for (int i = 0; i < 20; i++) {
      live(i);
    }
    Held before = Held.now();
    for (int i = 0; i < 200; i++) {
      live(i);
    }
    Held.assertNoMoreThan(before);
  }

  @Tag("process")
  @Test
  void communicatorsWithAnotherProcessLeaveNothing() throws Exception {
    lives(20);
  }

  @Tag("process")
  @Tag("long")
  @Timeout(600)
  @Test
  void twoHundredCommunicatorsWithAnotherProcessLeaveNothing() throws Exception {
    lives(200);
  }

  @Tag("process")
  @Test
  void livesWithAnotherProcessKeepNothing() throws Exception {
    shortLives(50, 50);
  }

  /** Each with a communicator of threads of this process, and of one rank each of two. */
  @Tag("process")
  @Tag("long")
  @Timeout(1800)
  @Test
  void tenThousandLivesKeepNothing() throws Exception {
    shortLives(10_000, 10_000);
  }

  /** Descriptors and mapped bytes stay what they are, here and in the other process. */
  private static void shortLives(int ofThreads, int ofProcesses) throws Exception {
    int warmUp = 20;
    try (ChildJvm child = ChildJvm.start(RankMain.class)) {
      Held before = null;
      long start = System.nanoTime();
      for (int i = -warmUp; i < Math.max(ofThreads, ofProcesses); i++) {
        if (i == 0) {
          child.tell("held");
          child.expect("held");
          before = Held.now();
        }
        if (i < ofThreads) {
          live(i + warmUp);
        }
        if (i < ofProcesses) {
          UniqueId id = UniqueId.create(Backend.HOST);
          child.tell("join " + id + " 2 1");
          try (Communicator own =
                  Communicator.initRank(
                      Device.get(Backend.HOST, 0), 2, id, 0, HostRanks.patient().build());
              Stream stream = own.device().newStream()) {
            child.expect("joined");
            child.tell("splits 1");
            RankMain.splits(own, stream, 1);
            child.expect("split");
          }
          child.tell("close");
          child.expect("closed");
        }
      }
      long millis = (System.nanoTime() - start) / 1_000_000;
      Held.assertNoMoreThan(before);
      System.out.printf(
          "%d communicators of threads, %d of processes in %d ms: %s, then %s%n",
          ofThreads, ofProcesses, millis, before, Held.now());
      child.tell("same");
      System.out.println("the other process: " + child.expect("same"));
    }
  }

  /** The child's Java heap holds about a hundred communicators. */
  @Tag("process")
  @Test
  void closedSplitsAreForgottenWhileTheirParentLives() throws Exception {
    int splits = 200;
    try (ChildJvm child = ChildJvm.start(RankMain.class)) {
      UniqueId id = UniqueId.create(Backend.HOST);
      child.tell("join " + id + " 2 1");
      try (Communicator own =
              Communicator.initRank(
                  Device.get(Backend.HOST, 0), 2, id, 0, HostRanks.patient().build());
          Stream stream = own.device().newStream()) {
        child.expect("joined");
        child.tell("splits " + splits);
        RankMain.splits(own, stream, splits);
        child.expect("split");
        child.tell("close");
        child.expect("closed");
      }
    }
  }

  private static void lives(int count) throws Exception {
    Held start = Held.now();
    try (ChildJvm child = ChildJvm.start(RankMain.class)) {
      Held before = null;
      for (int i = 0; i < count + 3; i++) {
        if (i == 3) {
          Held.assertNoMoreThan(
              new Held(
                  Held.now().descriptors(),
                  start.threads(),
                  start.mappings(),
                  start.bytes(),
                  start.mappedBytes()));
          before = Held.now();
        }
        UniqueId id = UniqueId.create(Backend.HOST);
        int own = i % 2;
        child.tell("join " + id + " 2 " + (1 - own));
        try (Communicator communicator =
                Communicator.initRank(
                    Device.get(Backend.HOST, own), 2, id, own, HostRanks.patient().build());
            Stream stream = communicator.device().newStream()) {
          child.expect("joined");
          communicator.barrier(stream);
          // It begins with another operation: some lives end with a contradiction, others with an
          // abort.
          child.tell("trials 300 " + i);
          if (i % 2 == 0) {
            communicator.abort();
          }
          child.expect("failed");
        }
        child.tell("close");
        child.expect("closed");
      }
      Held.assertNoMoreThan(before);
    }
  }
}
