package io.nccl4j.internal.host;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.bootstrap.ChildJvm;
import java.time.Duration;
import java.util.Arrays;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;

/**
 * Large sums that one rank gives up while another is in the middle of them: stopped, slow, or just
 * not done. Whoever reports success has the right sums, although the other one changes its input as
 * soon as it has failed; and no buffer that is said to be quiet changes.
 */
@Timeout(value = 600, threadMode = ThreadMode.SEPARATE_THREAD)
@Tag("parallel")
class LateRankTest {
  private static final int COUNT = 16 << 20;
  private static final int QUIET = 0x77777777;

  /** The common pool may have one thread only, and both must run at the same time. */
  private static final Executor OWN_THREAD = task -> Thread.ofPlatform().daemon().start(task);

  /** What rank {@code rank} adds. */
  private static int value(int i, int rank, int salt) {
    return i * 31 + rank * 17 + salt;
  }

  static void fill(int[] values, int rank, int salt) {
    for (int i = 0; i < values.length; i++) {
      values[i] = value(i, rank, salt);
    }
  }

  static int wrong(int[] sums, int nranks, int salt) {
    int wrong = 0;
    for (int i = 0; i < sums.length; i++) {
      int sum = 0;
      for (int rank = 0; rank < nranks; rank++) {
        sum += value(i, rank, salt);
      }
      wrong += sums[i] == sum ? 0 : 1;
    }
    return wrong;
  }

  /**
   * One sum of all ranks.
   *
   * @param start called when all is prepared
   * @return how many elements are wrong, of those that were reported
   */
  static int sum(Communicator communicator, Stream stream, int count, int salt, Runnable start) {
    int[] values = new int[count];
    fill(values, communicator.rank(), salt);
    try (DeviceBuffer in = communicator.device().allocate(DataType.INT32, count);
        DeviceBuffer out = communicator.device().allocate(DataType.INT32, count)) {
      in.copyFrom(values);
      start.run();
      try {
        communicator.allReduce(in, out, count, DataType.INT32, ReduceOp.SUM, stream);
        stream.synchronize();
      } catch (NcclException e) {
        stream.close();
        throw e;
      }
      out.copyTo(values);
    }
    return wrong(values, communicator.nranks(), salt);
  }

  /** What ends the operation of rank 0, whose buffers and stream are open. */
  private interface End {
    void end(Communicator communicator, Stream stream) throws Exception;
  }

  /**
   * Rank 0's side: gives up, and then uses its buffers as the API allows.
   *
   * @param start called when all is prepared
   * @param goesOn called when rank 0 has failed; lets a stopped rank 1 go on
   */
  private static void giveUp(
      Communicator own, int[] values, int salt, Runnable start, End end, AutoCloseable goesOn)
      throws Exception {
    Device device = own.device();
    fill(values, 0, salt);
    try (DeviceBuffer in = device.allocate(DataType.INT32, COUNT);
        DeviceBuffer out = device.allocate(DataType.INT32, COUNT);
        Stream stream = device.newStream()) {
      in.copyFrom(values);
      start.run();
      boolean failed = false;
      try {
        own.allReduce(in, out, COUNT, DataType.INT32, ReduceOp.SUM, stream);
        end.end(own, stream);
      } catch (NcclException e) {
        failed = true;
      }
      if (!failed) {
        out.copyTo(values);
        assertEquals(0, wrong(values, 2, salt), "elements of rank 0 are wrong");
        goesOn.close();
        return;
      }
      // Nobody who goes on may take this for the input of the sum.
      Arrays.fill(values, 1);
      in.copyFrom(values);
      if (!out.isQuiet()) {
        InvalidUsageException e =
            assertThrows(InvalidUsageException.class, () -> refuse(out, stream));
        assertTrue(e.getMessage().contains("rank 1"), e.getMessage());
      }
      goesOn.close();
      assertTrue(out.awaitQuiet(Duration.ofSeconds(30)));
      Arrays.fill(values, QUIET);
      out.copyFrom(values);
      // A step of the other rank takes some milliseconds.
      Thread.sleep(50);
      out.copyTo(values);
      assertEquals(COUNT, Arrays.stream(values).filter(v -> v == QUIET).count(), "changed later");
    }
  }

  private static void refuse(DeviceBuffer out, Stream stream) {
    stream.device();
    out.copyFrom(new int[] {1});
    assertTrue(out.isQuiet(), "a buffer that is not quiet was used");
    throw new InvalidUsageException("rank 1 became quiet in between", "");
  }

  private static void synchronizeToTheEnd(Communicator ignored, Stream stream) {
    stream.synchronize();
  }

  private static void signal(String signal, long pid) throws Exception {
    assertEquals(0, new ProcessBuilder("kill", "-" + signal, Long.toString(pid)).start().waitFor());
  }

  // ---- processes

  private static CommunicatorConfig shortDeadline() {
    return HostRanks.patient().operationTimeout(Duration.ofMillis(400)).build();
  }

  private void withProcesses(int tries, boolean abort) throws Exception {
    long seed = Long.getLong("nccl4j.test.seed", new Random().nextLong());
    System.out.println("LateRankTest seed " + seed);
    Random random = new Random(seed);
    int[] values = new int[COUNT];
    int right = 0;
    int failed = 0;
    try (ChildJvm peer = ChildJvm.start(RankMain.class)) {
      for (int salt = 0; salt < tries; salt++) {
        UniqueId id = UniqueId.create(Backend.HOST);
        peer.tell("join " + id + " 2 1");
        try (Communicator own =
            Communicator.initRank(Device.get(Backend.HOST, 0), 2, id, 0, shortDeadline())) {
          peer.expect("joined");
          peer.tell("sum " + COUNT + " " + salt);
          int stopAfter = random.nextInt(150);
          giveUp(
              own,
              values,
              salt,
              () -> {},
              (communicator, stream) -> {
                CompletableFuture<Void> stopped =
                    CompletableFuture.runAsync(
                        () -> {
                          try {
                            Thread.sleep(stopAfter);
                            signal(abort ? "CONT" : "STOP", peer.pid());
                            if (abort) {
                              communicator.abort();
                            }
                          } catch (Exception e) {
                            throw new IllegalStateException(e);
                          }
                        });
                try {
                  stream.synchronize();
                } finally {
                  stopped.get(10, TimeUnit.SECONDS);
                }
              },
              () -> signal("CONT", peer.pid()));
        }
        String answer = peer.expectAny("summed", "failed");
        if (answer.startsWith("summed")) {
          assertEquals("summed 0", answer, "elements of rank 1 are wrong in try " + salt);
          right++;
        } else {
          failed++;
        }
        peer.tell("close");
        peer.expect("closed");
      }
    }
    System.out.println(tries + " tries: " + right + " right, " + failed + " failed");
  }

  @Tag("process")
  @Test
  void stoppedProcess() throws Exception {
    withProcesses(2, false);
  }

  @Tag("process")
  @Tag("long")
  @Test
  void stoppedProcessHundredTimes() throws Exception {
    withProcesses(100, false);
  }

  @Tag("process")
  @Test
  void abortedByAProcess() throws Exception {
    withProcesses(2, true);
  }

  @Tag("process")
  @Tag("long")
  @Test
  void abortedByAProcessHundredTimes() throws Exception {
    withProcesses(100, true);
  }

  // ---- threads

  private void withThreads(int tries, boolean abort) throws Exception {
    Random random = new Random(7);
    int[] values = new int[COUNT];
    CommunicatorConfig config =
        HostRanks.patient().operationTimeout(Duration.ofMillis(abort ? 30_000 : 60)).build();
    int right = 0;
    for (int salt = 0; salt < tries; salt++) {
      int delay = random.nextInt(abort ? 40 : 160);
      int salted = salt;
      CyclicBarrier start = new CyclicBarrier(2);
      try (HostRanks ranks = new HostRanks(2, 64, config)) {
        CompletableFuture<Integer> other =
            CompletableFuture.supplyAsync(
                () -> {
                  try {
                    return sum(
                        ranks.get(1),
                        ranks.streams.get(1),
                        COUNT,
                        salted,
                        () -> {
                          meet(start);
                          sleep(abort ? 0 : delay);
                        });
                  } catch (NcclException e) {
                    return -1;
                  }
                },
                OWN_THREAD);
        End end =
            abort
                ? (communicator, stream) -> {
                  CompletableFuture<Void> aborted =
                      CompletableFuture.runAsync(
                          () -> {
                            sleep(delay);
                            communicator.abort();
                          },
                          OWN_THREAD);
                  try {
                    stream.synchronize();
                  } finally {
                    aborted.get(10, TimeUnit.SECONDS);
                  }
                }
                : LateRankTest::synchronizeToTheEnd;
        giveUp(ranks.get(0), values, salt, () -> meet(start), end, () -> {});
        int wrong = other.get(60, TimeUnit.SECONDS);
        assertTrue(wrong <= 0, wrong + " elements of rank 1 are wrong in try " + salt);
        right += wrong == 0 ? 1 : 0;
      }
    }
    System.out.println(tries + " tries: " + right + " right, " + (tries - right) + " failed");
  }

  private static void meet(CyclicBarrier barrier) {
    try {
      barrier.await(60, TimeUnit.SECONDS);
    } catch (Exception e) {
      throw new IllegalStateException(e);
    }
  }

  private static void sleep(int millis) {
    try {
      Thread.sleep(millis);
    } catch (InterruptedException e) {
      throw new IllegalStateException(e);
    }
  }

  @Test
  void abortedByAThread() throws Exception {
    withThreads(2, true);
  }

  @Tag("long")
  @Test
  void abortedByAThreadHundredTimes() throws Exception {
    withThreads(100, true);
  }

  @Test
  void slowThread() throws Exception {
    withThreads(2, false);
  }

  @Tag("long")
  @Test
  void slowThreadHundredTimes() throws Exception {
    withThreads(100, false);
  }
}
