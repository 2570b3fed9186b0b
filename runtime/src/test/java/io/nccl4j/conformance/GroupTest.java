package io.nccl4j.conformance;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Group;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.time.Duration;
import java.util.Arrays;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** A group starts whole or not at all. */
@Timeout(value = 60, threadMode = ThreadMode.SEPARATE_THREAD)
class GroupTest {
  @Test
  void nothingStartsBeforeLaunch() {
    try (Ranks ranks = new Ranks(3)) {
      try (Group group = Group.start()) {
        for (int rank = 0; rank < 3; rank++) {
          ranks.put(rank, rank + 1);
          ranks.out.get(rank).copyFrom(new int[] {-1});
          ranks.sum(rank, 1);
        }
        for (int rank = 0; rank < 3; rank++) {
          assertTrue(ranks.streams.get(rank).query());
          ranks.streams.get(rank).synchronize();
          assertEquals(-1, ranks.got(rank, 1)[0]);
        }
        group.launch();
      }
      ranks.synchronize();
      assertEquals(6, ranks.got(0, 1)[0]);
      ranks.assertUsable();
    }
  }

  @Test
  @SuppressWarnings("try")
  void whatIsNotLaunchedIsDiscarded() {
    try (Ranks ranks = new Ranks(2)) {
      try (DeviceBuffer buffer = ranks.get(0).device().allocate(1 << 16)) {
        try (Group group = Group.start()) {
          ranks
              .get(0)
              .allReduce(buffer, buffer, 1000, DataType.INT8, ReduceOp.MAX, ranks.streams.get(0));
          ranks.get(0).send(buffer, 1000, DataType.INT8, 1, ranks.streams.get(0));
        }
        assertTrue(ranks.streams.get(0).query());
        // Nothing uses the buffer any more.
        buffer.close();
      }
      // The other rank has nothing to discard, and the numbering of operations still agrees.
      ranks.assertUsable();
      byte[] data = {1, 2, 3};
      ranks.in.get(0).copyFrom(data);
      ranks.get(0).send(ranks.in.get(0), 3, DataType.INT8, 1, ranks.streams.get(0));
      ranks.get(1).recv(ranks.out.get(1), 3, DataType.INT8, 0, ranks.streams.get(1));
      ranks.synchronize();
      assertArrayEquals(data, ranks.out.get(1).slice(0, 3).toBytes());
    }
  }

  @Test
  void anExceptionDiscardsTheGroup() {
    try (Ranks ranks = new Ranks(2)) {
      IllegalStateException thrown = new IllegalStateException("the program's own");
      IllegalStateException caught =
          assertThrows(
              IllegalStateException.class,
              () ->
                  Group.run(
                      () -> {
                        ranks.sum(0, 1);
                        throw thrown;
                      }));
      assertSame(thrown, caught);
      ranks.assertUsable();
      // No group is left open on this thread.
      ranks.sum(0, 1);
      ranks.sum(1, 1);
      ranks.synchronize();
    }
  }

  @Test
  void aWrongCallInAGroupIsRefusedAtOnceAndTheRestMayBeLaunched() {
    try (Ranks ranks = new Ranks(2)) {
      ranks.put(0, 3);
      ranks.put(1, 4);
      try (Group group = Group.start()) {
        ranks.sum(0, 1);
        assertThrows(InvalidArgumentException.class, () -> ranks.sum(0, -1));
        assertThrows(InvalidArgumentException.class, () -> ranks.sum(1, Ranks.BYTES));
        ranks.sum(1, 1);
        group.launch();
      }
      ranks.synchronize();
      assertEquals(7, ranks.got(1, 1)[0]);
      ranks.assertUsable();
    }
  }

  @Test
  void innerGroupsHandOverToTheOutermost() {
    try (Ranks ranks = new Ranks(2)) {
      ranks.put(0, 3);
      ranks.put(1, 4);
      ranks.out.get(0).copyFrom(new int[] {-1});
      try (Group outer = Group.start()) {
        Group.run(() -> ranks.sum(0, 1));
        Group.run(() -> Group.run(() -> ranks.sum(1, 1)));
        ranks.synchronize();
        assertEquals(-1, ranks.got(0, 1)[0]);
        outer.launch();
      }
      ranks.synchronize();
      assertEquals(7, ranks.got(0, 1)[0]);
      ranks.assertUsable();
    }
  }

  @Test
  @SuppressWarnings("try")
  void anInnerGroupIsDiscardedAlone() {
    try (Ranks ranks = new Ranks(2)) {
      ranks.put(0, 3);
      ranks.put(1, 4);
      try (Group outer = Group.start()) {
        ranks.sum(0, 1);
        try (Group inner = Group.start()) {
          ranks.sum(0, 100);
          assertThrows(
              IllegalStateException.class,
              () ->
                  Group.run(
                      () -> {
                        ranks.sum(0, 50);
                        throw new IllegalStateException();
                      }));
          inner.close();
        }
        ranks.sum(1, 1);
        outer.launch();
      }
      ranks.synchronize();
      assertEquals(7, ranks.got(0, 1)[0]);
      ranks.assertUsable();
    }
  }

  @Test
  @SuppressWarnings("try")
  void aDiscardedOuterGroupDiscardsItsInnerGroups() {
    try (Ranks ranks = new Ranks(2)) {
      try (Group outer = Group.start()) {
        Group.run(() -> ranks.sum(0, 100));
        assertTrue(ranks.streams.get(0).query());
      }
      ranks.assertUsable();
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {8, 10_000, 50_000})
  void pointToPointMakesAnAllToAll(int count) throws Exception {
    try (Ranks ranks = new Ranks(4)) {
      for (int round = 0; round < 3; round++) {
        int base = round * 1000;
        ranks.communicators.run(
            communicator -> {
              int me = communicator.rank();
              int[] values = new int[4 * count];
              for (int i = 0; i < values.length; i++) {
                values[i] = base + me * 100 + i / count * 10 + i % 7;
              }
              ranks.put(me, values);
              Stream stream = ranks.streams.get(me);
              Group.run(
                  () -> {
                    for (int peer = 0; peer < 4; peer++) {
                      long at = 4L * count * peer;
                      communicator.send(
                          ranks.in.get(me).slice(at), count, DataType.INT32, peer, stream);
                      communicator.recv(
                          ranks.out.get(me).slice(at), count, DataType.INT32, peer, stream);
                    }
                  });
              stream.synchronize();
              int[] got = ranks.got(me, 4 * count);
              for (int i = 0; i < got.length; i++) {
                int wanted = base + i / count * 100 + me * 10 + (me * count + i % count) % 7;
                if (got[i] != wanted) {
                  throw new AssertionError("element " + i + " is " + got[i] + ", not " + wanted);
                }
              }
            });
      }
      ranks.assertUsable();
    }
  }

  @Test
  void sendsToOnePeerArriveInOrder() {
    try (Ranks ranks = new Ranks(2)) {
      int messages = 50;
      int[] values = new int[messages * messages * 6];
      for (int i = 0; i < values.length; i++) {
        values[i] = i * 31;
      }
      ranks.put(0, values);
      // Sizes on both sides of the eager limit, in one order.
      long at = 0;
      for (int k = 0; k < messages; k++) {
        long count = (k * 37L % messages + 1) * (k % 6 + 1);
        long bytes = 4 * count;
        DeviceBuffer from = ranks.in.get(0).slice(at, bytes);
        DeviceBuffer to = ranks.out.get(1).slice(at, bytes);
        ranks.get(0).send(from, count, DataType.INT32, 1, ranks.streams.get(0));
        ranks.get(1).recv(to, count, DataType.INT32, 0, ranks.streams.get(1));
        at += bytes;
      }
      ranks.synchronize();
      int count = (int) (at / 4);
      assertArrayEquals(Arrays.copyOf(values, count), ranks.got(1, count));
    }
  }

  @Test
  void collectivesPointToPointAndSeveralCommunicatorsMix() {
    try (Ranks a = new Ranks(2);
        Ranks b = new Ranks(2)) {
      for (int rank = 0; rank < 2; rank++) {
        a.put(rank, rank + 1, 10);
        b.put(rank, rank + 5, 20);
      }
      Group.run(
          () -> {
            for (int rank = 0; rank < 2; rank++) {
              int peer = 1 - rank;
              Stream stream = a.streams.get(rank);
              a.sum(rank, 2);
              a.get(rank).send(a.in.get(rank), 1, DataType.INT32, peer, stream);
              b.sum(rank, 2, stream);
              DeviceBuffer to = a.out.get(rank).slice(8);
              a.get(rank).recv(to, 1, DataType.INT32, peer, stream);
              a.get(rank).barrier(stream);
            }
          });
      a.synchronize();
      assertArrayEquals(new int[] {3, 20, 2}, a.got(0, 3));
      assertArrayEquals(new int[] {3, 20, 1}, a.got(1, 3));
      assertArrayEquals(new int[] {11, 40}, b.got(0, 2));
      assertArrayEquals(new int[] {11, 40}, b.got(1, 2));
      b.assertUsable();
    }
  }

  @Test
  void manyCollectivesInOneGroupOfOneThread() {
    try (Ranks ranks = new Ranks(8)) {
      Group.run(
          () -> {
            for (int rank = 0; rank < 8; rank++) {
              ranks.put(rank, rank);
              for (int i = 0; i < 40; i++) {
                ranks.sum(rank, 1 + i * 50);
              }
            }
          });
      ranks.synchronize();
      assertEquals(28, ranks.got(7, 1)[0]);
    }
  }

  @Test
  void anEmptyGroupIsFine() {
    try (Group group = Group.start()) {
      group.launch();
    }
    Group.run(() -> {});
  }

  @Test
  void aGroupBeyondHalfOfTheWorkFifoIsRefusedWhole() {
    CommunicatorConfig small =
        CommunicatorConfig.builder()
            .fifoBytes(4096)
            .operationTimeout(Duration.ofSeconds(20))
            .build();
    try (Ranks ranks = new Ranks(2, small)) {
      try (Group group = Group.start()) {
        InvalidUsageException e =
            assertThrows(
                InvalidUsageException.class,
                () -> {
                  for (int i = 0; i < 2000; i++) {
                    DeviceBuffer in = ranks.in.get(0);
                    DeviceBuffer out = ranks.out.get(1);
                    ranks.get(0).send(in, 1, DataType.INT32, 1, ranks.streams.get(0));
                    ranks.get(1).recv(out, 1, DataType.INT32, 0, ranks.streams.get(1));
                  }
                  group.launch();
                });
        assertTrue(e.getMessage().matches("(?is).*fifo.*"), e.getMessage());
      }
      assertTrue(ranks.streams.get(0).query());
      assertTrue(ranks.streams.get(1).query());
      ranks.assertUsable();
    }
  }

  @Test
  void aGroupIsLaunchedOnce() {
    try (Ranks ranks = new Ranks(1);
        Group group = Group.start()) {
      ranks.sum(0, 1);
      group.launch();
      assertThrows(InvalidUsageException.class, group::launch);
      ranks.synchronize();
      ranks.assertUsable();
    }
  }

  @Test
  @SuppressWarnings("try")
  void aClosedGroupIsNotLaunched() {
    try (Ranks ranks = new Ranks(1);
        Group group = Group.start()) {
      ranks.sum(0, 1);
      group.close();
      group.close();
      assertThrows(InvalidUsageException.class, group::launch);
      ranks.assertUsable();
    }
  }

  @Test
  void aGroupBelongsToItsThread() throws Exception {
    try (Ranks ranks = new Ranks(2);
        Group group = Group.start()) {
      ranks.put(0, 1);
      ranks.put(1, 2);
      ranks.sum(0, 1);
      AtomicReference<Throwable> thrown = new AtomicReference<>();
      Thread other =
          Thread.ofPlatform()
              .start(
                  () -> {
                    try {
                      group.launch();
                    } catch (Throwable e) {
                      thrown.set(e);
                    }
                  });
      other.join();
      assertEquals(InvalidUsageException.class, thrown.get().getClass());
      ranks.sum(1, 1);
      group.launch();
      ranks.synchronize();
      assertEquals(3, ranks.got(0, 1)[0]);
    }
  }

  @Test
  void groupsOfDifferentThreadsAreApart() throws Exception {
    try (Ranks ranks = new Ranks(2);
        Group group = Group.start()) {
      ranks.put(0, 1);
      ranks.put(1, 2);
      ranks.sum(0, 1);
      Thread other = Thread.ofPlatform().start(() -> ranks.sum(1, 1));
      other.join();
      group.launch();
      ranks.synchronize();
      assertEquals(3, ranks.got(1, 1)[0]);
    }
  }
}
