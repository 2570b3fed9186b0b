package io.nccl4j.conformance;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Communicator;
import io.nccl4j.Communicators;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Event;
import io.nccl4j.MismatchException;
import io.nccl4j.NcclException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;
import org.junit.jupiter.api.condition.EnabledOnOs;
import org.junit.jupiter.api.condition.OS;

/** Communicators that come and go leave nothing behind. */
@EnabledOnOs(OS.LINUX)
@Timeout(value = 120, threadMode = ThreadMode.SEPARATE_THREAD)
class LeakTest {
  private static final int WARM_UP = 20;

  // On GPUs, NCCL takes 0.7 s to create and close a communicator.
  private static final int LIVES = TestBackend.hasGpus() ? 40 : 200;
  private static final long MOST_HEAP = 16 << 20;
  private static final int PROCESS_WARM_UP = 3;
  private static final int PROCESS_LIVES = 20;

  /** What one process holds. */
  private record Held(long descriptors, long threads, long mappings) {
    static Held now() {
      try (java.util.stream.Stream<Path> descriptors = Files.list(Path.of("/proc/self/fd"));
          java.util.stream.Stream<String> mappings = Files.lines(Path.of("/proc/self/maps"))) {
        return new Held(
            descriptors.count(),
            Thread.getAllStackTraces().keySet().stream()
                .filter(thread -> thread.getName().startsWith("nccl4j-"))
                .count(),
            mappings.filter(line -> line.contains("memfd:")).count());
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }

    /** Whether there is no more of anything; the class loader may open a file or two. */
    boolean noMoreThan(Held before) {
      return descriptors <= before.descriptors + 2
          && threads <= before.threads
          && mappings <= before.mappings + 2;
    }
  }

  private static void live(int nranks) throws Exception {
    try (Communicators all = TestBackend.communicators(nranks)) {
      all.run(LeakTest::use);
    }
  }

  private static void use(Communicator communicator) {
    int[] counts = {4, 2000, 70_000};
    try (Stream stream = communicator.device().newStream();
        Event event = communicator.device().newEvent();
        DeviceBuffer buffer = communicator.device().allocate(1 << 20)) {
      for (int count : counts) {
        communicator.allReduce(buffer, buffer, count, DataType.INT32, ReduceOp.SUM, stream);
        stream.record(event);
        stream.synchronize();
      }
      communicator.allReduce(new int[2000], ReduceOp.SUM);
    }
  }

  @Test
  void threadRanksLeaveNothing() throws Exception {
    for (int i = 0; i < WARM_UP; i++) {
      live(2 + i % 2);
    }
    Held before = Held.now();
    for (int i = 0; i < LIVES; i++) {
      live(2 + i % 2);
    }
    assertTrue(
        TestBackend.eventually(() -> Held.now().noMoreThan(before)),
        () -> "after " + LIVES + " communicators: " + before + " became " + Held.now());
  }

  @Test
  void splitsLeaveNothing() throws Exception {
    try (Communicators all = TestBackend.communicators(2)) {
      all.run(
          communicator -> {
            for (int i = 0; i < WARM_UP; i++) {
              splitAndUse(communicator);
            }
          });
      Held before = Held.now();
      long heap = heapBytes();
      all.run(
          communicator -> {
            for (int i = 0; i < LIVES / 2; i++) {
              splitAndUse(communicator);
            }
          });
      assertTrue(
          TestBackend.eventually(() -> Held.now().noMoreThan(before)),
          () -> before + " became " + Held.now());
      assertTrue(
          TestBackend.eventually(() -> heapBytes() < heap + MOST_HEAP),
          () -> "the heap grew from " + heap + " to " + heapBytes() + " bytes");
    }
  }

  /** What is alive: on cuda each child has more than 1 MiB. */
  private static long heapBytes() {
    System.gc();
    return ManagementFactory.getMemoryMXBean().getHeapMemoryUsage().getUsed();
  }

  private static void splitAndUse(Communicator communicator) {
    try (Communicator child = communicator.split(0, 0)) {
      use(Objects.requireNonNull(child));
    }
  }

  @Test
  void failedAndAbortedCommunicatorsLeaveNothing() throws Exception {
    for (int i = 0; i < WARM_UP; i++) {
      fail(i);
    }
    Held before = Held.now();
    for (int i = 0; i < LIVES / 2; i++) {
      fail(i);
    }
    assertTrue(
        TestBackend.eventually(() -> Held.now().noMoreThan(before)),
        () -> before + " became " + Held.now());
  }

  private static void fail(int i) {
    try (Ranks ranks = new Ranks(2)) {
      ranks.sum(0, 1000);
      if (i % 2 == 0) {
        ranks.get(1).abort();
      } else {
        ranks.sum(1, 1001);
      }
      for (Stream stream : ranks.streams) {
        try {
          stream.synchronize();
        } catch (NcclException e) {
          assertTrue(i % 2 == 0 || e instanceof MismatchException, e::toString);
        }
      }
    }
  }

  @Test
  void streamsEventsAndBuffersLeaveNothing() {
    try (Ranks ranks = new Ranks(1)) {
      for (int i = 0; i < WARM_UP; i++) {
        use(ranks.get(0));
      }
      Held before = Held.now();
      for (int i = 0; i < 5 * LIVES; i++) {
        use(ranks.get(0));
      }
      assertTrue(
          TestBackend.eventually(() -> Held.now().noMoreThan(before)),
          () -> before + " became " + Held.now());
    }
  }

  @Tag("process")
  @Test
  void processRanksLeaveNothing() throws Exception {
    List<String> ids = new ArrayList<>();
    for (int i = 0; i < PROCESS_WARM_UP + PROCESS_LIVES; i++) {
      ids.add(UniqueId.create(TestBackend.BACKEND).toString());
    }
    List<Process> children = new ArrayList<>();
    Held before = Held.now();
    try {
      for (int rank = 0; rank < 2; rank++) {
        ProcessBuilder builder = ProcessRanks.java(Child.class, Integer.toString(rank));
        builder.environment().put(ProcessRanks.ID, String.join(" ", ids));
        children.add(builder.start());
      }
      for (Process child : children) {
        String printed = new String(child.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        assertTrue(child.waitFor(60, TimeUnit.SECONDS));
        assertEquals(0, child.exitValue(), printed);
        assertTrue(printed.contains("nothing left"), printed);
      }
      assertTrue(
          TestBackend.eventually(() -> Held.now().noMoreThan(before)),
          () -> "the process that served the rendezvous: " + before + " became " + Held.now());
    } finally {
      children.forEach(Process::destroyForcibly);
    }
  }

  /** A process with one rank of 2, in one communicator after the other. */
  static final class Child {
    private Child() {}

    public static void main(String[] arguments) {
      int rank = Integer.parseInt(arguments[0]);
      String[] ids = System.getenv(ProcessRanks.ID).split(" ");
      Held before = null;
      for (int i = 0; i < ids.length; i++) {
        if (i == PROCESS_WARM_UP) {
          before = Held.now();
        }
        UniqueId id = UniqueId.parse(ids[i]);
        try (Communicator communicator =
            Communicator.initRank(TestBackend.device(rank), 2, id, rank, TestBackend.CONFIG)) {
          use(communicator);
        }
      }
      Held start = before;
      boolean clean = TestBackend.eventually(() -> Held.now().noMoreThan(start));
      System.out.println(clean ? "nothing left" : start + " became " + Held.now());
    }
  }
}
