package io.nccl4j.internal.host;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Event;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.internal.host.progress.Progress;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;

/** A stream may pass from driver to driver between any two steps, and results stay right. */
@Timeout(value = 60, threadMode = ThreadMode.SEPARATE_THREAD)
class OwnershipTest {
  private static final int RANKS = 3;
  private static final int DRIVERS = 3;
  private static final int LARGEST = 600;

  /**
   * Rounds of: this thread submits a batch for all ranks, then all drivers at once synchronise and
   * query all streams in different orders, while the ticker does its part.
   */
  @Test
  void manyDriversOfTheSameStreams() throws Exception {
    handOver(100_000, new Random().nextLong());
  }

  @Tag("long")
  @Timeout(1800)
  @Test
  void manyDriversOfTheSameStreamsForLong() throws Exception {
    handOver(5_000_000, new Random().nextLong());
  }

  private static void handOver(int operations, long seed) throws Exception {
    System.out.println("seed " + seed);
    Random random = new Random(seed);
    ExecutorService drivers = Executors.newFixedThreadPool(DRIVERS);
    try (HostRanks ranks = new HostRanks(RANKS, LARGEST * Integer.BYTES)) {
      for (int done = 0; done < operations; ) {
        int batch = 1 + random.nextInt(300);
        boolean twoStreams = random.nextInt(4) == 0;
        // A chain: each operation sums the results of the one before, so that a lost or repeated
        // step shows.
        fill(ranks);
        int[] expected = start(1);
        List<Stream> extra = new ArrayList<>();
        for (int rank = 0; twoStreams && rank < RANKS; rank++) {
          extra.add(ranks.get(rank).device().newStream());
        }
        for (int i = 0; i < batch; i++) {
          int count = 1 + random.nextInt(LARGEST);
          int root = random.nextInt(RANKS);
          boolean reduces = i % 3 != 2;
          for (int rank = 0; rank < RANKS; rank++) {
            Stream stream = twoStreams && i % 2 == 1 ? extra.get(rank) : ranks.streams.get(rank);
            DeviceBuffer buffer = ranks.in.get(rank);
            if (reduces) {
              ranks
                  .get(rank)
                  .allReduce(buffer, buffer, count, DataType.INT32, ReduceOp.SUM, stream);
            } else {
              ranks.get(rank).broadcast(buffer, buffer, count, DataType.INT32, root, stream);
            }
          }
          for (int e = 0; reduces && e < count; e++) {
            expected[e] *= RANKS;
          }
        }
        done += batch;
        driveAll(drivers, ranks, extra, random);
        for (int rank = 0; rank < RANKS; rank++) {
          int[] found = new int[LARGEST];
          ranks.in.get(rank).copyTo(found);
          assertArrayEquals(expected, found, "rank " + rank + " after " + done);
        }
        extra.forEach(Stream::close);
      }
    } finally {
      drivers.shutdownNow();
    }
  }

  private static int[] start(int value) {
    int[] values = new int[LARGEST];
    Arrays.fill(values, value);
    return values;
  }

  private static void fill(HostRanks ranks) {
    ranks.in.forEach(buffer -> buffer.copyFrom(start(1)));
  }

  private static void driveAll(
      ExecutorService drivers, HostRanks ranks, List<Stream> extra, Random random)
      throws Exception {
    List<Stream> all = new ArrayList<>(ranks.streams);
    all.addAll(extra);
    CyclicBarrier together = new CyclicBarrier(DRIVERS);
    List<Future<?>> running = new ArrayList<>();
    for (int d = 0; d < DRIVERS; d++) {
      int first = random.nextInt(all.size());
      boolean queries = random.nextBoolean();
      running.add(
          drivers.submit(
              () -> {
                together.await();
                for (int i = 0; i < all.size(); i++) {
                  Stream stream = all.get((first + i) % all.size());
                  if (!queries || !stream.query()) {
                    stream.synchronize();
                  }
                }
                return null;
              }));
    }
    for (Future<?> future : running) {
      future.get(30, TimeUnit.SECONDS);
    }
  }

  /** Work that nobody waits for moves by the ticker alone; then by a rank that only asks. */
  @Test
  void submittedWorkMovesWithoutADriver() throws Exception {
    try (HostRanks ranks = new HostRanks(2, LARGEST * Integer.BYTES)) {
      ranks.in.forEach(buffer -> buffer.copyFrom(start(1)));
      for (int i = 0; i < 20; i++) {
        ranks.sum(0, LARGEST);
        ranks.sum(1, LARGEST);
        for (Stream stream : ranks.streams) {
          HostStream own = HostStream.of(stream);
          while (own.hasPending()) {
            Thread.onSpinWait();
          }
        }
        ranks.out.forEach(buffer -> assertArrayEquals(start(2), buffer.toInts()));
      }
    }
  }

  /** One rank is driven only by query, from alternating threads, against a rank that runs ahead. */
  @Test
  void queryAloneCompletesEverything() throws Exception {
    try (HostRanks ranks = new HostRanks(2, LARGEST * Integer.BYTES)) {
      ranks.in.forEach(buffer -> buffer.copyFrom(start(1)));
      AtomicBoolean stop = new AtomicBoolean();
      Stream asked = ranks.streams.get(0);
      Thread helper =
          Thread.ofPlatform()
              .start(
                  () -> {
                    while (!stop.get()) {
                      boolean ignored = asked.query();
                    }
                  });
      try {
        for (int i = 0; i < 2000; i++) {
          ranks.sum(0, 1 + i % LARGEST);
          ranks.sum(1, 1 + i % LARGEST);
          ranks.streams.get(1).synchronize();
          while (!asked.query()) {
            Thread.onSpinWait();
          }
        }
      } finally {
        stop.set(true);
        helper.join();
      }
      assertTrue(asked.query());
      ranks.out.forEach(buffer -> assertArrayEquals(start(2), buffer.toInts()));
    }
  }

  /** A waiter may know a place in the stream that is being filled in. */
  @Test
  void nobodyDrivesBeyondWhatIsPublished() {
    try (HostRanks ranks = new HostRanks(1, 64)) {
      HostStream stream = HostStream.of(ranks.streams.get(0));
      ranks.sum(0, 1);
      assertFalse(Progress.drive(stream, stream.tail() + 1, 20_000_000));
      assertEquals(1, stream.head());
      ranks.sum(0, 1);
      ranks.streams.get(0).synchronize();
      assertEquals(2, stream.head());
    }
  }

  /**
   * An event is recorded again and again while other threads wait for it, and for what is before
   * it.
   */
  @Test
  void anEventIsRecordedWhileOthersWaitForIt() throws Exception {
    int records = 20_000;
    ExecutorService waiters = Executors.newFixedThreadPool(2);
    try (HostRanks ranks = new HostRanks(1, LARGEST * Integer.BYTES);
        Event event = ranks.get(0).device().newEvent()) {
      Stream stream = ranks.streams.get(0);
      AtomicBoolean stop = new AtomicBoolean();
      List<Future<?>> running = new ArrayList<>();
      for (int w = 0; w < 2; w++) {
        running.add(
            waiters.submit(
                () -> {
                  while (!stop.get()) {
                    event.synchronize();
                  }
                }));
      }
      try {
        for (int i = 0; i < records && running.stream().noneMatch(Future::isDone); i++) {
          ranks.sum(0, 1 + i % 9);
          stream.record(event);
        }
        stream.synchronize();
      } finally {
        stop.set(true);
        for (Future<?> future : running) {
          future.get(30, TimeUnit.SECONDS);
        }
      }
      assertTrue(event.isComplete());
    } finally {
      waiters.shutdownNow();
    }
  }
}
