package io.nccl4j.conformance;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.PinnedBuffer;
import io.nccl4j.Stream;
import io.nccl4j.memory.MemoryPool;
import io.nccl4j.memory.MemoryPoolOptions;
import io.nccl4j.memory.MemoryPoolStatistics;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;

/** A pool of many threads against a model that knows which bytes are in use. */
@Timeout(value = 300, threadMode = ThreadMode.SEPARATE_THREAD)
class PoolModelTest {
  private static final int THREADS = 8;
  private static final int MOST_OPEN = 24;

  /** Reserved memory may be so many times what was needed at most. */
  private static final double MOST_OVERHEAD = 2.5;

  private static final long CHUNK = 8 << 20;

  /** Which addresses are in use, and how many bytes. */
  private static final class Model {
    private final NavigableMap<Long, Long> ends = new TreeMap<>();
    private long used;
    private long peak;

    synchronized void add(DeviceBuffer buffer) {
      long start = buffer.address();
      long end = start + buffer.byteSize();
      Map.Entry<Long, Long> before = ends.lowerEntry(Math.max(end, start + 1));
      assertTrue(
          before == null || before.getValue() <= start,
          () -> "given out twice: " + buffer.byteSize() + " bytes at " + start);
      assertNull(ends.put(start, Math.max(end, start + 1)), "given out twice");
      used += buffer.byteSize();
      peak = Math.max(peak, used);
    }

    synchronized void remove(DeviceBuffer buffer) {
      assertTrue(ends.remove(buffer.address()) != null);
      used -= buffer.byteSize();
    }
  }

  private record Filled(DeviceBuffer buffer, Stream stream, byte value) {}

  private final Model model = new Model();
  private final AtomicInteger operations = new AtomicInteger();
  private final AtomicLong wrong = new AtomicLong();

  /** Buffers that a thread leaves for another one to close. */
  private final ConcurrentLinkedQueue<DeviceBuffer> abandoned = new ConcurrentLinkedQueue<>();

  /** Sizes from 0 to 2 MiB, each order of magnitude as often. */
  private static long size(Random random) {
    return random.nextInt(50) == 0 ? 0 : (long) Math.exp(random.nextDouble() * Math.log(2 << 20));
  }

  private void run(MemoryPool pool, Device device, Random random, int total) {
    List<Filled> open = new ArrayList<>();
    try (Stream stream = device.newStream();
        PinnedBuffer seen = device.allocatePinned(4)) {
      while (operations.getAndIncrement() < total) {
        int choice = random.nextInt(100);
        if (choice < 48 && open.size() < MOST_OPEN) {
          DeviceBuffer buffer = pool.allocate(size(random), stream);
          model.add(buffer);
          byte value = (byte) random.nextInt();
          boolean isFilled = choice < 4 && buffer.byteSize() >= 4;
          if (isFilled) {
            stream.fill(buffer, value);
          }
          open.add(new Filled(buffer, stream, isFilled ? value : 0));
        } else if (choice < 96 && !open.isEmpty()) {
          Filled filled = open.remove(random.nextInt(open.size()));
          if (filled.value != 0) {
            stream.copy(seen, filled.buffer.slice(filled.buffer.byteSize() - 4, 4));
            stream.synchronize();
            int found = seen.segment().get(ValueLayout.JAVA_INT, 0);
            if ((byte) found != filled.value || (byte) (found >> 24) != filled.value) {
              wrong.incrementAndGet();
              System.out.printf("%x instead of %x%n", found, filled.value);
            }
          }
          model.remove(filled.buffer);
          filled.buffer.close();
        } else if (choice == 96 && !open.isEmpty()) {
          abandoned.add(open.removeLast().buffer);
        } else if (choice == 97) {
          DeviceBuffer other = abandoned.poll();
          if (other != null) {
            model.remove(other);
            other.close();
          }
        } else if (choice == 98) {
          stream.synchronize();
        } else if (random.nextInt(20) == 0) {
          pool.trim(random.nextInt(64 << 20));
        }
      }
      for (Filled filled : open) {
        model.remove(filled.buffer);
        filled.buffer.close();
      }
      stream.synchronize();
    }
  }

  private void run(int total) throws Exception {
    Device device = TestBackend.device(0);
    List<Throwable> thrown = Collections.synchronizedList(new ArrayList<>());
    try (MemoryPool pool =
        MemoryPool.create(device, MemoryPoolOptions.DEFAULTS.withChunkBytes(CHUNK))) {
      List<Thread> threads = new ArrayList<>();
      long start = System.nanoTime();
      for (int i = 0; i < THREADS; i++) {
        Random random = new Random(TestBackend.SEED + i);
        threads.add(
            Thread.ofPlatform()
                .start(
                    () -> {
                      try {
                        run(pool, device, random, total);
                      } catch (Throwable e) {
                        thrown.add(e);
                      }
                    }));
      }
      for (Thread thread : threads) {
        thread.join();
      }
      long nanos = System.nanoTime() - start;
      assertEquals(List.of(), thrown);
      for (DeviceBuffer buffer : abandoned) {
        model.remove(buffer);
        buffer.close();
      }
      MemoryPoolStatistics end = pool.statistics();
      System.out.printf(
          "pool on %s: %d operations of %d threads in %d ms; at most %d KiB in use, %d KiB"
              + " reserved%n",
          device,
          total,
          THREADS,
          nanos / 1_000_000,
          end.peakUsedBytes() >> 10,
          end.peakReservedBytes() >> 10);
      assertEquals(0, wrong.get());
      assertEquals(0, end.openBuffers());
      assertEquals(0, end.usedBytes());
      assertEquals(0, end.blockBytes());
      assertTrue(model.ends.isEmpty());
      assertTrue(end.peakUsedBytes() >= model.peak - THREADS * (2L << 20));
      assertTrue(
          end.peakReservedBytes() <= MOST_OVERHEAD * end.peakUsedBytes() + 2 * CHUNK,
          end::toString);
      pool.trim(0);
      end = pool.statistics();
      assertEquals(0, end.reservedBytes(), end::toString);
      assertEquals(0, end.cachedBytes());
    }
  }

  @Test
  void twentyThousandOperations() throws Exception {
    run(20_000);
  }

  @Tag("long")
  @Test
  void millionOperations() throws Exception {
    run(1_000_000);
  }
}
