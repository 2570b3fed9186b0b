package io.nccl4j.internal.host;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.AbortedException;
import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.DeadlineException;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.bootstrap.ChildJvm;
import io.nccl4j.internal.host.memory.HostHeap;
import io.nccl4j.internal.host.memory.ProcessMemory;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;

/**
 * A peer that was stopped in the middle of an operation goes on writing when it wakes up: what it
 * writes to must not be used for anything else until then.
 */
@Tag("process")
@Timeout(value = 120, threadMode = ThreadMode.SEPARATE_THREAD)
class QuarantineTest {
  private static final int COUNT = 4 << 20;
  private static final long BYTES = (long) COUNT * Integer.BYTES;
  private static final Duration STUCK = Duration.ofMillis(300);

  private ChildJvm peer;

  @BeforeEach
  void startPeer() {
    peer = ChildJvm.start(RankMain.class);
  }

  @AfterEach
  void endPeer() {
    peer.close();
  }

  private static void signal(String signal, long pid) throws Exception {
    int status = new ProcessBuilder("kill", "-" + signal, Long.toString(pid)).start().waitFor();
    assertEquals(0, status);
  }

  private Communicator join() throws Exception {
    UniqueId id = UniqueId.create(Backend.HOST);
    peer.tell("join " + id + " 2 1");
    Communicator own =
        Communicator.initRank(Device.get(Backend.HOST, 0), 2, id, 0, HostRanks.patient().build());
    peer.expect("joined");
    return own;
  }

  /** Runs large sums until the peer is stopped in the middle of one, and aborts that. */
  private void stopPeerAndAbort(Communicator own, DeviceBuffer in, DeviceBuffer out, Random random)
      throws Exception {
    peer.tell("loop " + COUNT);
    try (Stream stream = own.device().newStream()) {
      for (int i = 0; i < 25; i++) {
        own.allReduce(in, out, COUNT, DataType.INT32, ReduceOp.SUM, stream);
        stream.synchronize();
      }
      own.allReduce(in, out, COUNT, DataType.INT32, ReduceOp.SUM, stream);
      peer.expect("looping");
      Thread stopper =
          Thread.ofPlatform()
              .start(
                  () -> {
                    try {
                      signal("STOP", peer.pid());
                    } catch (Exception e) {
                      throw new IllegalStateException(e);
                    }
                  });
      int extra = random.nextInt(5);
      try {
        for (int i = 0; ; i++) {
          stream.synchronize(STUCK);
          own.allReduce(in, out, COUNT, DataType.INT32, ReduceOp.SUM, stream);
          if (i < extra) {
            stream.synchronize(STUCK);
          }
        }
      } catch (DeadlineException expected) {
        String missing = "rank " + (1 - own.rank());
        assertTrue(expected.getMessage().contains(missing), expected.getMessage());
      }
      stopper.join();
      own.abort();
      assertThrows(AbortedException.class, stream::synchronize);
    }
  }

  /** Waits until no more than this is allocated: the control block is gone. */
  private static void awaitBytes(long most) {
    while (ProcessMemory.self().heap().allocatedBytes() > most) {
      Thread.onSpinWait();
    }
  }

  private static List<DeviceBuffer> refill(Device device) {
    List<DeviceBuffer> buffers = new ArrayList<>();
    int[] values = new int[COUNT];
    Arrays.fill(values, 0x77777777);
    for (int i = 0; i < 4; i++) {
      DeviceBuffer buffer = device.allocate(BYTES);
      buffer.copyFrom(values);
      buffers.add(buffer);
    }
    return buffers;
  }

  @Test
  void aPeerThatWakesUpAfterAnAbortWritesIntoNothingThatIsInUse() throws Exception {
    long seed = new Random().nextLong();
    System.out.println("seed " + seed);
    Random random = new Random(seed);
    int[] expected = new int[COUNT];
    Arrays.fill(expected, 0x77777777);
    for (int round = 0; round < 4; round++) {
      Communicator own = join();
      HostHeap heap = ProcessMemory.self().heap();
      DeviceBuffer in = own.device().allocate(BYTES);
      DeviceBuffer out = own.device().allocate(BYTES);
      stopPeerAndAbort(own, in, out, random);
      in.close();
      out.close();
      assertTrue(heap.allocatedBytes() > 2 * BYTES, "the peer may still touch both");
      List<DeviceBuffer> reused = refill(own.device());
      boolean closeFirst = round % 2 == 0;
      if (closeFirst) {
        own.close();
      }
      signal("CONT", peer.pid());
      assertTrue(peer.expect("failed").contains("aborted"));
      for (DeviceBuffer buffer : reused) {
        assertArrayEquals(expected, buffer.toInts());
        buffer.close();
      }
      peer.tell("close");
      peer.expect("closed");
      if (!closeFirst) {
        assertTrue(heap.allocatedBytes() < BYTES, "the peer is quiet");
        own.close();
      }
    }
  }

  /** The buffers are closed last, when peer, communicator, mapping and control block are gone. */
  @Test
  void buffersMayOutliveTheirFailedCommunicator() throws Exception {
    Held before = Held.now();
    for (int round = 0; round < 2; round++) {
      Communicator own = join();
      DeviceBuffer in = own.device().allocate(BYTES);
      DeviceBuffer out = own.device().allocate(BYTES);
      stopPeerAndAbort(own, in, out, new Random(round));
      signal("CONT", peer.pid());
      peer.expect("failed");
      peer.tell("close");
      peer.expect("closed");
      own.close();
      awaitBytes(2 * BYTES);
      // What the control block lay in may be anything by now.
      DeviceBuffer other = own.device().allocate(4 << 20);
      other.copyFrom(new byte[4 << 20]);
      in.close();
      out.close();
      other.close();
      Held.assertNoMoreThan(before);
    }
  }

  /** The same from the side that maps the other's control block: this process is rank 1. */
  @Test
  void buffersMayOutliveTheControlBlockOfAPeer() throws Exception {
    Held before = Held.now();
    UniqueId id = UniqueId.create(Backend.HOST);
    peer.tell("join " + id + " 2 0");
    Communicator own =
        Communicator.initRank(Device.get(Backend.HOST, 1), 2, id, 1, HostRanks.patient().build());
    peer.expect("joined");
    DeviceBuffer in = own.device().allocate(BYTES);
    DeviceBuffer out = own.device().allocate(BYTES);
    stopPeerAndAbort(own, in, out, new Random(1));
    signal("CONT", peer.pid());
    peer.expect("failed");
    peer.tell("close");
    peer.expect("closed");
    own.close();
    while (Held.now().mappings() > before.mappings()) {
      Thread.onSpinWait();
    }
    in.close();
    out.close();
    Held.assertNoMoreThan(before);
    assertEquals(Communicator.State.CLOSED, own.state());
    own.abort();
  }

  @Test
  void theMemoryOfAStoppedPeersOperationComesBackWhenThePeerDies() throws Exception {
    for (boolean closeFirst : new boolean[] {true, false}) {
      endPeer();
      startPeer();
      HostHeap heap = ProcessMemory.self().heap();
      Held before = Held.now();
      Communicator own = join();
      DeviceBuffer in = own.device().allocate(BYTES);
      DeviceBuffer out = own.device().allocate(BYTES);
      stopPeerAndAbort(own, in, out, new Random(2));
      in.close();
      out.close();
      if (closeFirst) {
        own.close();
      }
      assertTrue(heap.allocatedBytes() > 2 * BYTES);
      peer.kill();
      int ignored = peer.await();
      if (!closeFirst) {
        own.close();
      }
      Held.assertNoMoreThan(before);
    }
  }

  /** Silence is no death: a stopped peer is reported as missing, not as dead, and may go on. */
  @Test
  void aStoppedPeerMayGoOn() throws Exception {
    Communicator own = join();
    DeviceBuffer in = own.device().allocate(400);
    DeviceBuffer out = own.device().allocate(400);
    Stream stream = own.device().newStream();
    peer.tell("loop 100");
    for (int i = 0; i < 1000; i++) {
      if (i == 500) {
        signal("STOP", peer.pid());
      }
      own.allReduce(in, out, 100, DataType.INT32, ReduceOp.SUM, stream);
      if (i != 501) {
        continue;
      }
      assertThrows(DeadlineException.class, () -> stream.synchronize(STUCK));
      assertEquals(Communicator.State.READY, own.state());
      signal("CONT", peer.pid());
    }
    stream.synchronize();
    stream.close();
    own.close();
    assertTrue(peer.expect("failed").contains("rank 0 left"));
    in.close();
    out.close();
  }
}
