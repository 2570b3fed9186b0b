package io.nccl4j.conformance;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.management.ThreadMXBean;
import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ExecutableGraph;
import io.nccl4j.Graph;
import io.nccl4j.Group;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.SystemErrorException;
import io.nccl4j.memory.MemoryPool;
import io.nccl4j.memory.MemoryPoolOptions;
import io.nccl4j.memory.MemoryPoolStatistics;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;

/** Buffers that come and go in the order of streams. */
@Timeout(value = 60, threadMode = ThreadMode.SEPARATE_THREAD)
class PoolTest {
  private static final long MIB = 1 << 20;
  private static final ThreadMXBean THREADS = (ThreadMXBean) ManagementFactory.getThreadMXBean();

  private final Device device = TestBackend.device(0);

  private static void assertText(Throwable thrown, String... words) {
    for (String word : words) {
      assertTrue(
          String.valueOf(thrown.getMessage()).contains(word),
          () -> "'" + word + "' is not in: " + thrown.getMessage());
    }
  }

  @Test
  void sizesAndAlignment() {
    try (MemoryPool pool = MemoryPool.create(device);
        Stream stream = device.newStream()) {
      List<DeviceBuffer> buffers = new ArrayList<>();
      for (long bytes :
          new long[] {0, 1, 255, 256, 257, 4096, 4097, 8192, 32768, 32769, 3 * MIB, 70 * MIB}) {
        DeviceBuffer buffer = pool.allocate(bytes, stream);
        buffers.add(buffer);
        assertEquals(bytes, buffer.byteSize());
        assertSame(device, buffer.device());
        boolean asWindow = bytes >= 32768 || bytes > 0 && bytes % 4096 == 0;
        assertEquals(0, buffer.address() % (asWindow ? 4096 : 256), () -> bytes + " bytes");
      }
      MemoryPoolStatistics now = pool.statistics();
      assertEquals(buffers.size(), now.openBuffers());
      assertEquals(buffers.stream().mapToLong(DeviceBuffer::byteSize).sum(), now.usedBytes());
      assertEquals(now.reservedBytes(), now.blockBytes() + now.cachedBytes() + now.freeBytes());
      assertEquals(2, now.chunks());
      buffers.forEach(DeviceBuffer::close);
      assertEquals(0, pool.statistics().usedBytes());
      assertEquals(now.usedBytes(), pool.statistics().peakUsedBytes());
      DeviceBuffer floats = pool.allocate(DataType.FLOAT64, 5, stream);
      assertEquals(40, floats.byteSize());
      floats.close();
    }
  }

  /** The next buffer of a stream has the memory of the last one, before its works are done. */
  @Test
  void memoryGoesRoundInTheOrderOfAStream() {
    try (Ranks ranks = new Ranks(2);
        MemoryPool pool = MemoryPool.create(device);
        Stream other = device.newStream()) {
      Stream stream = ranks.streams.get(0);
      ranks.sum(0, 64);
      DeviceBuffer first = pool.allocate(4096, stream);
      stream.fill(first, (byte) 1);
      long address = first.address();
      first.close();
      DeviceBuffer second = pool.allocate(4000, stream);
      assertEquals(address, second.address());
      stream.fill(second, (byte) 2);
      second.close();
      // Another stream has other memory, until the works are done.
      DeviceBuffer foreign = pool.allocate(4096, other);
      assertNotEquals(address, foreign.address());
      foreign.close();
      assertEquals(0, pool.trim(0));
      assertThrows(InvalidUsageException.class, pool::close);
      ranks.sum(1, 64);
      ranks.synchronize();
      assertTrue(pool.trim(0) > 0);
      assertEquals(0, pool.statistics().reservedBytes());
    }
  }

  /** A stream gets the memory of another one that was not even synchronised, once it is idle. */
  @Test
  void memoryGoesToOtherStreams() {
    MemoryPoolOptions small = new MemoryPoolOptions(4 * MIB, MIB, 4 * MIB);
    try (MemoryPool pool = MemoryPool.create(device, small);
        Stream one = device.newStream();
        Stream two = device.newStream()) {
      for (int i = 0; i < 20; i++) {
        Stream stream = i % 2 == 0 ? one : two;
        assertTrue(
            TestBackend.eventually(
                () -> {
                  try (DeviceBuffer buffer = pool.allocate(3 * MIB, stream)) {
                    stream.fill(buffer, (byte) 1);
                    return true;
                  } catch (SystemErrorException e) {
                    assertText(e, "of at most", "close buffers, synchronize");
                    return false;
                  }
                }),
            "the device never passes it");
      }
      one.synchronize();
      two.synchronize();
    }
  }

  @Test
  void contentsAreRight() throws Exception {
    try (Ranks ranks = new Ranks(2)) {
      Throwable[] thrown =
          ranks.outcomes(
              comm -> {
                int r = comm.rank();
                Stream stream = ranks.streams.get(r);
                try (MemoryPool pool = MemoryPool.create(comm.device())) {
                  for (int i = 0; i < 200; i++) {
                    int count = 1 + i * 97 % 5000;
                    DeviceBuffer in = pool.allocate(DataType.INT32, count, stream);
                    DeviceBuffer out = pool.allocate(DataType.INT32, count, stream);
                    stream.fill(in, (byte) (i % 50 + r));
                    comm.allReduce(in, out, count, DataType.INT32, ReduceOp.SUM, stream);
                    in.close();
                    if (i % 10 == 0) {
                      stream.synchronize();
                      int[] expected = new int[count];
                      Arrays.fill(expected, 0x01010101 * (2 * (i % 50) + 1));
                      assertArrayEquals(expected, out.toInts());
                    }
                    out.close();
                  }
                  stream.synchronize();
                }
              });
      assertArrayEquals(new Throwable[2], thrown);
    }
  }

  // ---- buffer objects

  @Test
  void closingTwiceIsHarmless() {
    try (MemoryPool pool = MemoryPool.create(device);
        Stream stream = device.newStream()) {
      DeviceBuffer first = pool.allocate(100, stream);
      DeviceBuffer part = first.slice(0, 10);
      first.close();
      DeviceBuffer second = pool.allocate(100, stream);
      assertTrue(first.isClosed());
      assertTrue(part.isClosed());
      first.close();
      assertFalse(second.isClosed());
      assertThrows(InvalidUsageException.class, () -> stream.fill(first, (byte) 0));
      assertThrows(InvalidUsageException.class, () -> first.slice(0));
      second.close();
      // Long afterwards the object is another buffer; slices of the first one know.
      DeviceBuffer again = pool.allocate(100, stream);
      for (int i = 0; i < 1000 && again != first; i++) {
        again.close();
        again = pool.allocate(100, stream);
      }
      assertSame(first, again);
      assertTrue(part.isClosed());
      assertThrows(InvalidUsageException.class, () -> stream.fill(part, (byte) 0));
      again.close();
    }
  }

  @Test
  void allocatesNoJavaHeap() {
    int block = 1000;
    try (MemoryPool pool = MemoryPool.create(device);
        Stream stream = device.newStream()) {
      long least = Long.MAX_VALUE;
      for (int i = 0; i < 500 && least > 0; i++) {
        long before = THREADS.getCurrentThreadAllocatedBytes();
        for (int k = 0; k < block; k++) {
          DeviceBuffer small = pool.allocate(1000, stream);
          DeviceBuffer large = pool.allocate(DataType.FLOAT32, 100_000, stream);
          small.close();
          large.close();
        }
        long allocated = THREADS.getCurrentThreadAllocatedBytes() - before;
        least = Math.min(least, i < 5 ? Long.MAX_VALUE : allocated);
      }
      System.out.printf(
          "pool on %s: %d B of Java heap in %d allocations%n", device, least, 2 * block);
      assertEquals(0, least);
      assertEquals(1, pool.statistics().chunks());
    }
  }

  // ---- graphs and groups

  @Test
  void capturesAndPools() {
    try (Ranks ranks = new Ranks(1);
        MemoryPool pool = MemoryPool.create(device)) {
      Stream stream = ranks.streams.get(0);
      DeviceBuffer buffer = pool.allocate(64, stream);
      stream.beginCapture();
      InvalidUsageException e =
          assertThrows(InvalidUsageException.class, () -> pool.allocate(64, stream).close());
      assertText(e, "allocate", "being captured", "before beginCapture");
      stream.fill(buffer, (byte) 3);
      try (Graph graph = stream.endCapture();
          ExecutableGraph executable = graph.instantiate()) {
        executable.launch(stream);
        stream.synchronize();
        assertEquals(0x03030303, buffer.toInts()[0]);
        buffer.close();
        // However often the pool allocates: the graph's buffer stays closed.
        for (int i = 0; i < 2 * MemoryPool.OLDEST; i++) {
          pool.allocate(64, stream).close();
        }
        e = assertThrows(InvalidUsageException.class, () -> executable.launch(stream));
        assertText(e, "closed");
      }
    }
  }

  @Test
  void groupsAndPools() {
    try (Ranks ranks = new Ranks(1);
        MemoryPool pool = MemoryPool.create(device)) {
      Stream stream = ranks.streams.get(0);
      DeviceBuffer buffer = pool.allocate(64, stream);
      try (Group group = Group.start()) {
        ranks.get(0).allReduce(buffer, buffer, 4, DataType.INT32, ReduceOp.SUM, stream);
        buffer.close();
        assertTrue(buffer.isClosed());
        // The group comes first: until it ends the memory serves nobody else.
        DeviceBuffer next = pool.allocate(64, stream);
        assertNotEquals(buffer.address(), next.address());
        next.close();
        group.launch();
      }
      DeviceBuffer after = pool.allocate(64, stream);
      after.close();
      stream.synchronize();
      assertEquals(0, pool.statistics().openBuffers());
    }
  }

  /** What a capture has of a closed buffer is never run, and the memory is free for others. */
  @Test
  void aBufferMayBeClosedInACapture() {
    try (Ranks ranks = new Ranks(1);
        MemoryPool pool = MemoryPool.create(device)) {
      Stream stream = ranks.streams.get(0);
      DeviceBuffer buffer = pool.allocate(64, stream);
      stream.beginCapture();
      stream.fill(buffer, (byte) 3);
      buffer.close();
      try (Graph graph = stream.endCapture();
          ExecutableGraph executable = graph.instantiate()) {
        InvalidUsageException e =
            assertThrows(InvalidUsageException.class, () -> executable.launch(stream));
        assertText(e, "closed");
      }
      for (int i = 0; i < 2 * MemoryPool.OLDEST; i++) {
        DeviceBuffer next = pool.allocate(64, stream);
        assertNotSame(buffer, next);
        next.close();
      }
      stream.synchronize();
      assertEquals(0, pool.statistics().openBuffers());
    }
  }

  // ---- refusals

  @Test
  void wrongCalls() {
    Device other = TestBackend.device(1);
    Stream closed = device.newStream();
    closed.close();
    MemoryPool pool = MemoryPool.create(device, MemoryPoolOptions.DEFAULTS.withLimitBytes(8 * MIB));
    try (Stream stream = device.newStream();
        Stream foreign = other.newStream()) {
      assertText(
          assertThrows(InvalidArgumentException.class, () -> pool.allocate(-1, stream)), "-1");
      assertThrows(InvalidArgumentException.class, () -> pool.allocate(Long.MAX_VALUE, stream));
      assertThrows(InvalidArgumentException.class, () -> pool.allocate(1, null));
      assertThrows(InvalidArgumentException.class, () -> pool.allocate(DataType.INT32, -1, stream));
      if (other != device) {
        assertText(
            assertThrows(InvalidArgumentException.class, () -> pool.allocate(1, foreign)),
            "not on");
      }
      assertThrows(InvalidUsageException.class, () -> pool.allocate(1, closed));
      assertThrows(InvalidArgumentException.class, () -> pool.trim(-1));
      assertText(
          assertThrows(SystemErrorException.class, () -> pool.allocate(9 * MIB, stream)),
          "holds 0 of at most 8388608 bytes");
      DeviceBuffer buffer = pool.allocate(5 * MIB, stream);
      assertText(assertThrows(InvalidUsageException.class, pool::close), "1 of its buffers");
      assertThrows(SystemErrorException.class, () -> pool.allocate(6 * MIB, stream));
      buffer.close();
      // A chunk of another size takes the place of the first.
      pool.allocate(7 * MIB, stream).close();
      pool.close();
      pool.close();
      assertThrows(InvalidUsageException.class, () -> pool.allocate(1, stream));
      assertThrows(InvalidUsageException.class, () -> pool.trim(0));
    }
    assertThrows(InvalidArgumentException.class, () -> MemoryPool.create(device, null));
    assertThrows(InvalidArgumentException.class, () -> new MemoryPoolOptions(-1, 1, 1));
    assertThrows(InvalidArgumentException.class, () -> new MemoryPoolOptions(0, 0, 1));
    assertThrows(InvalidArgumentException.class, () -> new MemoryPoolOptions(2, 1, 1));
  }

  /** A failed stream gives nothing; what was closed on it comes back. */
  @Test
  void streamsThatFail() {
    MemoryPool pool = MemoryPool.create(device);
    try (Ranks ranks = new Ranks(2)) {
      Stream stream = ranks.streams.get(0);
      DeviceBuffer buffer = pool.allocate(100_000, stream);
      ranks.get(0).allReduce(buffer, buffer, 25_000, DataType.INT32, ReduceOp.SUM, stream);
      buffer.close();
      ranks.get(1).abort();
      assertThrows(NcclException.class, stream::synchronize);
      assertThrows(NcclException.class, () -> pool.allocate(1, stream));
    }
    assertTrue(
        TestBackend.eventually(() -> pool.trim(0) >= 0 && pool.statistics().reservedBytes() == 0));
    pool.close();
  }
}
