package io.nccl4j.internal.cuda;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Event;
import io.nccl4j.ExecutableGraph;
import io.nccl4j.Graph;
import io.nccl4j.Group;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.internal.cuda.nccl.CudaHealth;
import io.nccl4j.internal.cuda.nccl.CudaHolders;
import io.nccl4j.internal.cuda.nccl.Team;
import java.io.File;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Ranks on threads, and other threads that abort and close at moments that nobody chose. */
class CudaConcurrencyTest {
  private static final long SEED = Long.getLong("nccl4j.test.seed", 20260301L);

  /** Late enough that a hang is seen as one. */
  private static final CommunicatorConfig CONFIG = CudaRig.config(15_000, 15_000, 2_000);

  private StandIn standIn = StandIn.require();

  @BeforeEach
  void begin() {
    standIn = CudaRig.begin();
  }

  @AfterEach
  void nothingIsLeftAndOthersWork() {
    standIn.reset();
    CudaRig.requireNoLeak();
    try (CudaRig others = new CudaRig(2)) {
      others.checkSums();
    }
  }

  @Test
  void aborts() {
    abortAtRandom(30);
  }

  @Test
  @Tag("long")
  @Timeout(value = 30, unit = TimeUnit.MINUTES)
  void manyAborts() {
    abortAtRandom(2000);
  }

  /** A rank compares itself with its peers while one of them leaves. */
  @Test
  void aPeerMayLeaveWhileItIsLookedAt() throws InterruptedException {
    try (CudaRig rig = new CudaRig(2)) {
      CudaCommunicator stays = (CudaCommunicator) rig.communicators.get(0);
      CudaCommunicator leaves = (CudaCommunicator) rig.communicators.get(1);
      for (int i = 0; i < 1000; i++) {
        Team team = new Team("1", true);
        CudaHealth health =
            new CudaHealth(stays.own().self(), team, new CudaHolders("1"), stays.failureNotice());
        team.add(stays.own().self(), health, () -> false);
        Thread other =
            Thread.ofPlatform()
                .start(
                    () -> {
                      for (int k = 0; k < 50; k++) {
                        team.add(leaves.own().self(), leaves.own().health(), () -> false);
                        team.left(leaves.own().self());
                      }
                    });
        while (other.isAlive()) {
          assertNull(health.outcome());
        }
        other.join();
      }
    }
  }

  /** Whatever the ranks are at, the abort ends it at once, and all that they see is typed. */
  private void abortAtRandom(int rounds) {
    System.out.println("cuda, aborts: nccl4j.test.seed=" + SEED + ", " + rounds + " rounds");
    for (int round = 0; round < rounds; round++) {
      long seed = SEED + round;
      Random random = new Random(seed);
      int nranks = 2 + random.nextInt(3);
      long pause = random.nextInt(8_000_000);
      int victim = random.nextInt(nranks);
      long start;
      List<Throwable> thrown;
      try (CudaRig rig = new CudaRig(0, nranks, CONFIG)) {
        start = System.nanoTime();
        thrown =
            CudaRig.outcomes(
                nranks + 1,
                rank -> {
                  if (rank == nranks) {
                    LockSupport.parkNanos(pause);
                    rig.communicators.get(victim).abort();
                  } else {
                    Random choices = new Random(seed);
                    while (true) {
                      operate(rig, rank, choices.nextInt(7));
                    }
                  }
                });
        for (Communicator communicator : rig.communicators) {
          assertEquals(Communicator.State.ABORTED, communicator.state(), "seed " + seed);
        }
      }
      for (int rank = 0; rank < nranks; rank++) {
        Throwable e = thrown.get(rank);
        assertInstanceOf(NcclException.class, e, () -> "seed " + seed + ": " + e);
        assertTrue(
            String.valueOf(e.getMessage()).contains("abort")
                || String.valueOf(e.getMessage()).contains("has failed"),
            () -> "seed " + seed + ": " + e);
      }
      assertInstanceOf(CudaRig.Nothing.class, thrown.getLast(), "seed " + seed);
      assertTrue(
          System.nanoTime() - start < 12_000_000_000L, "seed " + seed + ": a deadline ended it");
    }
  }

  /** The same on all ranks. */
  private static void operate(CudaRig rig, int rank, int choice) {
    Stream stream = rig.streams.get(rank);
    Communicator communicator = rig.communicators.get(rank);
    int nranks = rig.size();
    switch (choice) {
      case 0 -> stream.synchronize();
      case 1 -> exchange(rig, rank);
      case 2 ->
          communicator.allGather(
              rig.in.get(rank), rig.out.get(rank), CudaRig.COUNT, DataType.INT32, stream);
      case 3 -> launch(rig, rank);
      case 4 -> {
        try (Event event = rig.in.get(rank).device().newEvent()) {
          stream.record(event);
          event.synchronize();
        }
      }
      case 5 ->
          communicator.allReduce(
              rig.in.get(rank),
              rig.out.get(rank),
              CudaRig.COUNT,
              DataType.INT32,
              ReduceOp.preMulSum(nranks),
              stream);
      default -> rig.sum(rank);
    }
  }

  private static void exchange(CudaRig rig, int rank) {
    int nranks = rig.size();
    Group.run(
        () -> {
          rig.communicators
              .get(rank)
              .send(
                  rig.in.get(rank), 8, DataType.INT32, (rank + 1) % nranks, rig.streams.get(rank));
          rig.communicators
              .get(rank)
              .recv(
                  rig.out.get(rank),
                  8,
                  DataType.INT32,
                  (rank + nranks - 1) % nranks,
                  rig.streams.get(rank));
        });
  }

  private static void launch(CudaRig rig, int rank) {
    Stream stream = rig.streams.get(rank);
    stream.beginCapture();
    try {
      rig.sum(rank);
    } catch (NcclException e) {
      abandon(stream, e);
      throw e;
    }
    try (Graph graph = stream.endCapture();
        ExecutableGraph executable = graph.instantiate()) {
      executable.launch(stream);
      executable.launch(stream);
    }
  }

  /** Ends a capture whose communicator has failed. */
  private static void abandon(Stream stream, NcclException cause) {
    try {
      stream.endCapture().close();
    } catch (NcclException e) {
      cause.addSuppressed(e);
    }
  }

  /** Several threads close everything at once, each thing: it ends once. */
  @Test
  void closesFromOtherThreads() {
    for (int round = 0; round < 20; round++) {
      CudaRig rig = new CudaRig(2);
      rig.checkSums();
      Event event = CudaRig.device(0).newEvent();
      DeviceBuffer large = CudaRig.device(0).allocate(33 << 20);
      rig.streams.getFirst().record(event);
      List<Throwable> thrown =
          CudaRig.outcomes(
              4,
              ignored -> {
                rig.communicators.forEach(Communicator::close);
                event.close();
                large.close();
                rig.in.forEach(DeviceBuffer::close);
              });
      thrown.forEach(e -> assertInstanceOf(CudaRig.Nothing.class, e, e::toString));
      rig.close();
      assertTrue(large.isClosed());
    }
    assertEquals(
        standIn.calls("cuEventCreate"), standIn.calls("cuEventDestroy_v2"), "events destroyed");
  }

  /** A communicator is closed by another thread while its rank is at work: both come back. */
  @Test
  void closesWhileItWorks() {
    for (int round = 0; round < 10; round++) {
      try (CudaRig rig = new CudaRig(0, 2, CudaRig.config(10_000, 15_000, 300))) {
        List<Throwable> thrown =
            CudaRig.outcomes(
                3,
                rank -> {
                  if (rank == 2) {
                    LockSupport.parkNanos(2_000_000);
                    close(rig.communicators.get(0));
                  } else {
                    while (true) {
                      rig.sum(rank);
                      rig.streams.get(rank).synchronize();
                    }
                  }
                });
        assertInstanceOf(NcclException.class, thrown.get(0), thrown.get(0)::toString);
        assertInstanceOf(NcclException.class, thrown.get(1), thrown.get(1)::toString);
      }
    }
  }

  /** It may come between a call and its launch, which looks as an open group does: again then. */
  private static void close(Communicator communicator) {
    while (communicator.state() != Communicator.State.CLOSED) {
      try {
        communicator.close();
      } catch (InvalidUsageException e) {
        Thread.yield();
      }
    }
  }

  /** Nothing grows: neither what CUDA counts, nor descriptors, nor threads. */
  @Test
  void lifetimesLeaveNothing() {
    List<Integer> descriptors = new ArrayList<>();
    for (int life = 0; life < 200; life++) {
      try (CudaRig rig = new CudaRig(2)) {
        rig.sum(0);
        rig.sum(1);
        if (life % 10 == 0) {
          rig.communicators.get(0).abort();
        } else {
          rig.streams.forEach(Stream::synchronize);
        }
      }
      if (life % 50 == 49) {
        CudaRig.requireNoLeak();
        descriptors.add(descriptors());
      }
    }
    assertTrue(
        CudaRig.eventually(
            () ->
                Thread.getAllStackTraces().keySet().stream()
                    .noneMatch(thread -> thread.getName().startsWith("nccl4j-end"))),
        "threads that end communicators are left");
    assertTrue(
        descriptors.getLast() <= descriptors.getFirst() + 4, () -> "descriptors: " + descriptors);
  }

  private static int descriptors() {
    String[] open = new File("/proc/self/fd").list();
    return open == null ? 0 : open.length;
  }
}
