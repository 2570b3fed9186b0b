package io.nccl4j.conformance;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Communicators;
import io.nccl4j.DataType;
import io.nccl4j.DeadlineException;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Ways to make communicators, and what they say about themselves. */
@Timeout(value = 60, threadMode = ThreadMode.SEPARATE_THREAD)
class InitTest {
  /**
   * Joins all ranks of a communicator at once and sums something up, each rank on its own thread.
   */
  private static void joinAndSum(int nranks, UniqueId id, int addend) throws Exception {
    List<CompletableFuture<Communicator>> joining = new ArrayList<>();
    for (int rank = nranks - 1; rank >= 0; rank--) {
      Device device = TestBackend.device(rank);
      joining.add(Communicator.initRankAsync(device, nranks, id, rank, TestBackend.CONFIG));
    }
    List<Communicator> communicators = new ArrayList<>();
    try {
      for (CompletableFuture<Communicator> one : joining.reversed()) {
        communicators.add(one.get(30, TimeUnit.SECONDS));
      }
      List<Thread> threads = new ArrayList<>();
      List<Integer> sums = new ArrayList<>();
      for (Communicator communicator : communicators) {
        threads.add(
            Thread.ofPlatform()
                .start(
                    () -> {
                      int sum = sum(communicator, addend);
                      synchronized (sums) {
                        sums.add(sum);
                      }
                    }));
      }
      for (Thread thread : threads) {
        thread.join();
      }
      assertEquals(nranks, sums.size());
      assertTrue(sums.stream().allMatch(sum -> sum == nranks * addend), sums::toString);
      for (int rank = 0; rank < nranks; rank++) {
        assertEquals(rank, communicators.get(rank).rank());
        assertEquals(nranks, communicators.get(rank).nranks());
      }
    } finally {
      communicators.forEach(Communicator::close);
    }
  }

  private static int sum(Communicator communicator, int addend) {
    try (Stream stream = communicator.device().newStream();
        DeviceBuffer buffer = communicator.device().allocate(4)) {
      buffer.copyFrom(new int[] {addend});
      communicator.allReduce(buffer, buffer, 1, DataType.INT32, ReduceOp.SUM, stream);
      stream.synchronize();
      return buffer.toInts()[0];
    }
  }

  @ParameterizedTest
  @ValueSource(ints = {1, 2, 5})
  void ranksOfOneProcessJoinByAnId(int nranks) throws Exception {
    TestBackend.requireRoomFor(nranks);
    joinAndSum(nranks, UniqueId.create(TestBackend.BACKEND), 7);
  }

  @Test
  void severalCommunicatorsAreMadeAtOnce() throws Exception {
    TestBackend.requireRoomFor(3);
    List<Thread> threads = new ArrayList<>();
    List<Throwable> thrown = new ArrayList<>();
    for (int i = 0; i < 8; i++) {
      int addend = i + 1;
      UniqueId id = UniqueId.create(TestBackend.BACKEND);
      threads.add(
          Thread.ofPlatform()
              .start(
                  () -> {
                    try {
                      joinAndSum(2 + addend % 2, id, addend);
                    } catch (Throwable e) {
                      synchronized (thrown) {
                        thrown.add(e);
                      }
                    }
                  }));
    }
    for (Thread thread : threads) {
      thread.join();
    }
    assertTrue(thrown.isEmpty(), thrown::toString);
  }

  @Test
  void aCommunicatorKnowsWhatItWasMadeOf() {
    CommunicatorConfig config =
        CommunicatorConfig.builder().name("training").fifoBytes(1 << 16).build();
    List<Device> devices = List.of(TestBackend.device(1), TestBackend.device(0));
    try (Communicators all = Communicator.initAll(devices, config)) {
      assertEquals(2, all.size());
      int rank = 0;
      for (Communicator communicator : all) {
        assertEquals(rank, communicator.rank());
        assertEquals(2, communicator.nranks());
        assertEquals(devices.get(rank), communicator.device());
        assertEquals("training", communicator.name());
        assertEquals(1 << 16, communicator.config().fifoBytes());
        assertEquals(Communicator.State.READY, communicator.state());
        assertTrue(communicator.failure().isEmpty());
        rank++;
      }
    }
  }

  @Test
  void namesAreMadeUpWhereNoneIsGiven() {
    try (Ranks a = new Ranks(2);
        Ranks b = new Ranks(2)) {
      assertFalse(a.get(0).name().isBlank());
      assertEquals(a.get(0).name(), a.get(1).name());
      assertNotEquals(a.get(0).name(), b.get(0).name());
    }
  }

  @Test
  void severalRanksMayShareADevice() {
    assumeTrue(
        TestBackend.BACKEND == Backend.HOST,
        () -> "skipped: " + TestBackend.BACKEND + " may refuse it, as NCCL does before 2.30");
    Device device = TestBackend.device(0);
    try (Communicators all = Communicator.initAll(List.of(device, device), TestBackend.CONFIG);
        Stream stream = device.newStream();
        Stream other = device.newStream();
        DeviceBuffer buffer = device.allocate(8)) {
      buffer.copyFrom(new int[] {3, 4});
      DeviceBuffer first = buffer.slice(0, 4);
      DeviceBuffer second = buffer.slice(4, 4);
      all.get(0).allReduce(first, first, 1, DataType.INT32, ReduceOp.SUM, stream);
      all.get(1).allReduce(second, second, 1, DataType.INT32, ReduceOp.SUM, other);
      stream.synchronize();
      other.synchronize();
      assertEquals(7, buffer.toInts()[0]);
      assertEquals(7, buffer.toInts()[1]);
    }
  }

  @Test
  void aLateRankIsWaitedForAndAMissingOneIsNot() throws Exception {
    UniqueId id = UniqueId.create(TestBackend.BACKEND);
    CommunicatorConfig config =
        CommunicatorConfig.builder().initTimeout(Duration.ofMillis(700)).build();
    CompletableFuture<Communicator> first =
        Communicator.initRankAsync(TestBackend.device(0), 2, id, 0, config);
    assertFalse(first.isDone());
    ExecutionException failure =
        assertThrows(ExecutionException.class, () -> first.get(20, TimeUnit.SECONDS));
    assertInstanceOf(DeadlineException.class, failure.getCause());
    // The failed attempt leaves other ids alone.
    joinAndSum(2, UniqueId.create(TestBackend.BACKEND), 1);
  }

  @Test
  void aTaskThatThrowsEndsTheOthers() {
    IllegalStateException own = new IllegalStateException("the program's own");
    try (Communicators all = TestBackend.communicators(3)) {
      IllegalStateException thrown =
          assertThrows(
              IllegalStateException.class,
              () ->
                  all.run(
                      communicator -> {
                        if (communicator.rank() == 1) {
                          throw own;
                        }
                        sum(communicator, 1);
                      }));
      assertEquals(own, thrown);
      all.forEach(c -> assertEquals(Communicator.State.ABORTED, c.state()));
    }
  }

  @Test
  void closingIsLocalAndKeepsWhatWasPromised() throws Exception {
    TestBackend.requireHost("NCCL sends nothing ahead of the receiver");
    try (Ranks ranks = new Ranks(2)) {
      ranks.put(0, 1, 2, 3);
      // Small enough not to need the receiver.
      DeviceBuffer in = ranks.in.get(0);
      ranks.get(0).send(in, 3, DataType.INT32, 1, ranks.streams.get(0));
      ranks.streams.get(0).synchronize();
      ranks.get(0).close();
      ranks.get(1).recv(ranks.out.get(1), 3, DataType.INT32, 0, ranks.streams.get(1));
      ranks.streams.get(1).synchronize();
      assertEquals(3, ranks.got(1, 3)[2]);
    }
  }
}
