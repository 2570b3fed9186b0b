package io.nccl4j.internal.host;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.NcclException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.bootstrap.ChildJvm;
import io.nccl4j.internal.host.layout.ControlBlock;
import io.nccl4j.internal.host.layout.Layout;
import io.nccl4j.internal.host.memory.ProcessMemory;
import io.nccl4j.memory.MemoryPool;
import io.nccl4j.memory.MemoryPurpose;
import io.nccl4j.memory.MemoryReport;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;

/**
 * Pools lie in the heap: peers reach their buffers, and no peer that is late writes into others.
 */
@Timeout(value = 60, threadMode = ThreadMode.SEPARATE_THREAD)
class PooledMemoryTest {
  private static final int COUNT = 1 << 20;
  private static final byte MARK = 0x5a;

  private static MemorySegment staging(HostCommunicator own) {
    ControlBlock control = own.own().part().control();
    MemorySegment heap = own.own().part().group().heap(own.own().part().processOf(own.rank()));
    long offset = control.getPlain(control.staging(own.rank()));
    return heap.asSlice(offset, Layout.STAGING_BYTES);
  }

  private static boolean isMarked(MemorySegment memory) {
    for (long i = 0; i < memory.byteSize(); i++) {
      if (memory.get(ValueLayout.JAVA_BYTE, i) != MARK) {
        return false;
      }
    }
    return true;
  }

  /** Runs what the other process's loop runs with; the first sum. */
  private static int sums(Communicator own, Stream stream, DeviceBuffer in, DeviceBuffer out) {
    for (int i = 0; i < 21; i++) {
      own.allReduce(in, out, COUNT, DataType.INT32, ReduceOp.SUM, stream);
      stream.synchronize();
    }
    int[] first = new int[1];
    out.slice(0, 4).copyTo(first);
    return first[0];
  }

  /** A sum of 4 MiB with another process does not touch the staging area; wrapped memory does. */
  @Tag("process")
  @Test
  void operationsHaveNoCopies() throws Exception {
    for (boolean wrapped : new boolean[] {false, true}) {
      UniqueId id = UniqueId.create(Backend.HOST);
      Device device = Device.get(Backend.HOST, 0);
      try (ChildJvm child = ChildJvm.start(RankMain.class);
          Arena arena = Arena.ofShared();
          MemoryPool pool = MemoryPool.create(device)) {
        child.tell("join " + id + " 2 1");
        try (Communicator own =
                Communicator.initRank(device, 2, id, 0, HostRanks.patient().build());
            Stream stream = device.newStream()) {
          child.expect("joined");
          child.tell("loop " + COUNT);
          MemorySegment staging = staging((HostCommunicator) own);
          staging.fill(MARK);
          DeviceBuffer in =
              wrapped
                  ? device.wrap(arena.allocate(4L * COUNT))
                  : pool.allocate(DataType.INT32, COUNT, stream);
          DeviceBuffer out = pool.allocate(DataType.INT32, COUNT, stream);
          stream.fill(in, (byte) 1);
          int sum = sums(own, stream, in, out);
          // The other rank's buffer is not filled.
          assertEquals(0x01010101, sum);
          assertEquals(!wrapped, isMarked(staging), wrapped ? "wrapped" : "pool");
          in.close();
          out.close();
          own.abort();
          child.expect("looping");
          child.expect("failed");
        }
      }
    }
  }

  /** Memory of an operation that was given up is no other stream's while a peer may write to it. */
  @Test
  void memoryThatAPeerMayWriteToIsKept() throws Exception {
    try (HostRanks ranks = new HostRanks(2, 64);
        Stream other = ranks.get(0).device().newStream();
        MemoryPool pool = MemoryPool.create(ranks.get(0).device())) {
      HostStream late = HostStream.of(ranks.streams.get(1));
      Stream stream = ranks.streams.get(0);
      DeviceBuffer buffer = pool.allocate(100_000, stream);
      DeviceBuffer theirs = ranks.get(1).device().allocate(100_000);
      // Rank 1 is in the middle of its work, and does not get on.
      while (!late.tryOwn()) {
        Thread.onSpinWait();
      }
      ranks.get(0).allReduce(buffer, buffer, 25_000, DataType.INT32, ReduceOp.SUM, stream);
      ranks
          .get(1)
          .allReduce(theirs, theirs, 25_000, DataType.INT32, ReduceOp.SUM, ranks.streams.get(1));
      assertFalse(stream.query());
      ranks.get(0).abort();
      assertThrows(NcclException.class, stream::synchronize);
      buffer.close();
      assertEquals(0, pool.trim(0));
      try (DeviceBuffer apart = pool.allocate(100_000, other)) {
        assertTrue(apart.address() != buffer.address());
      }
      late.disown();
      assertThrows(NcclException.class, ranks.streams.get(1)::synchronize);
      ranks.get(1).close();
      other.synchronize();
      long start = System.nanoTime();
      while (pool.trim(0) == 0 && System.nanoTime() - start < 5_000_000_000L) {
        Thread.onSpinWait();
      }
      assertEquals(0, pool.statistics().reservedBytes());
      theirs.close();
    }
  }

  /** Closing the pool does not wait for that: its memory is freed later. */
  @Test
  void aPoolClosesWhileAPeerMayWriteToItsMemory() throws Exception {
    try (HostRanks ranks = new HostRanks(2, 64)) {
      MemoryPool pool = MemoryPool.create(ranks.get(0).device());
      HostStream late = HostStream.of(ranks.streams.get(1));
      Stream stream = ranks.streams.get(0);
      DeviceBuffer buffer = pool.allocate(100_000, stream);
      DeviceBuffer theirs = ranks.get(1).device().allocate(100_000);
      while (!late.tryOwn()) {
        Thread.onSpinWait();
      }
      ranks.get(0).allReduce(buffer, buffer, 25_000, DataType.INT32, ReduceOp.SUM, stream);
      ranks
          .get(1)
          .allReduce(theirs, theirs, 25_000, DataType.INT32, ReduceOp.SUM, ranks.streams.get(1));
      assertFalse(stream.query());
      ranks.get(0).abort();
      assertThrows(NcclException.class, stream::synchronize);
      buffer.close();
      pool.close();
      Device device = ranks.get(0).device();
      assertTrue(MemoryReport.of(device).bytes(MemoryPurpose.POOL) >= 100_000, "freed too early");
      late.disown();
      assertThrows(NcclException.class, ranks.streams.get(1)::synchronize);
      theirs.close();
      long start = System.nanoTime();
      while (MemoryReport.of(device).bytes(MemoryPurpose.POOL) > 0) {
        assertTrue(System.nanoTime() - start < 5_000_000_000L, MemoryReport.of(device)::toString);
        Thread.onSpinWait();
      }
    }
  }

  @Test
  void poolsAreBooked() {
    Device device = Device.get(Backend.HOST, 901);
    long before = ProcessMemory.self().heap().allocatedBytes();
    try (MemoryPool pool = MemoryPool.create(device);
        Stream stream = device.newStream()) {
      pool.allocate(1, stream).close();
      pool.allocate(40 << 20, stream).close();
      assertEquals(72 << 20, MemoryReport.of(device).bytes(MemoryPurpose.POOL));
      stream.synchronize();
      assertEquals(40 << 20, pool.trim(32 << 20));
      assertEquals(32 << 20, MemoryReport.of(device).bytes(MemoryPurpose.POOL));
    }
    assertEquals(0, MemoryReport.of(device).bytes(MemoryPurpose.POOL));
    assertTrue(ProcessMemory.self().heap().allocatedBytes() <= before);
  }
}
