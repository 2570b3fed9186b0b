package io.nccl4j.internal.host;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.BackendUnavailableException;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Device;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.NcclException;
import io.nccl4j.PeerFailedException;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.bootstrap.ChildJvm;
import io.nccl4j.internal.host.memory.HostHeap;
import io.nccl4j.memory.MemoryPurpose;
import io.nccl4j.memory.MemoryReport;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;

/**
 * What one rank alone is refused while ranks join or divide: all of them end at once, with that
 * rank and its reason, and nothing stays.
 */
@Tag("process")
@Timeout(value = 180, threadMode = ThreadMode.SEPARATE_THREAD)
class RefusalTest {
  private static final int ORDINAL = 950;

  /** What a refusal may take on a busy machine, its JVM's start included. */
  private static final Duration SOON = Duration.ofSeconds(100);

  /** No deadline of a rank ends it. */
  private static final CommunicatorConfig CONFIG =
      HostRanks.patient().initTimeout(Duration.ofMinutes(10)).build();

  private final List<ChildJvm> children = new ArrayList<>();

  @AfterEach
  void endChildren() {
    children.forEach(ChildJvm::close);
  }

  private ChildJvm child(ChildJvm child) throws InterruptedException {
    children.add(child);
    child.expect("ready");
    return child;
  }

  private static CompletableFuture<Communicator> joins(UniqueId id, int nranks, int rank) {
    Device device = Device.get(Backend.HOST, ORDINAL + rank);
    return Communicator.initRankAsync(device, nranks, id, rank, CONFIG);
  }

  /** Waits for this process's rank 0, which is refused, too. */
  private static <T extends NcclException> T refused(
      Class<T> type, CompletableFuture<Communicator> own) {
    ExecutionException e =
        assertThrows(
            ExecutionException.class, () -> own.get(SOON.toMillis(), TimeUnit.MILLISECONDS));
    System.out.println(e.getCause());
    return assertInstanceOf(type, e.getCause());
  }

  /** The last of it is given back in the background. */
  private static void assertNothingStays() throws InterruptedException {
    Device device = Device.get(Backend.HOST, ORDINAL);
    long end = System.nanoTime() + SOON.toNanos();
    while (taken(device) > 0 && System.nanoTime() < end) {
      Thread.sleep(5);
    }
    assertEquals(0, taken(device), MemoryReport.of(device)::toString);
  }

  private static long taken(Device device) {
    return MemoryReport.of(device).bytes(MemoryPurpose.CONTROL)
        + MemoryReport.of(device).bytes(MemoryPurpose.STAGING);
  }

  /** A child is rank 1 of 2; both ranks hear of what it cannot have. */
  private PeerFailedException refusedInChild(ChildJvm child, String reason) throws Exception {
    UniqueId id = UniqueId.create(Backend.HOST);
    CompletableFuture<Communicator> own = joins(id, 2, 0);
    child.tell("join " + id + " 2 1");
    PeerFailedException heard = refused(PeerFailedException.class, own);
    assertEquals(1, heard.rank());
    assertTrue(heard.problem().contains(reason), heard::problem);
    String[] words = child.expect("failed").split(" ", 4);
    assertTrue(words[3].contains(reason), words[3]);
    assertNothingStays();
    return heard;
  }

  @Test
  void aBudgetInAnotherProcess() throws Exception {
    ChildJvm child = child(ChildJvm.start(RankMain.class));
    Held before = Held.now();
    child.tell("little 1");
    child.expect("little");
    refusedInChild(child, "memory-budget is 1 B");
    refusedInChild(child, "memory-budget is 1 B");
    Held.assertNoMoreThan(before);
  }

  @Test
  void aBudgetOfAThread() throws Exception {
    UniqueId id = UniqueId.create(Backend.HOST);
    CompletableFuture<Communicator> own = joins(id, 3, 0);
    CompletableFuture<Communicator> other = joins(id, 3, 2);
    NcclException thrown =
        assertThrows(
            NcclException.class,
            () ->
                Communicator.initRank(
                    Device.get(Backend.HOST, ORDINAL + 1),
                    3,
                    id,
                    1,
                    HostRanks.patient().memoryBudget(1).build()));
    for (CompletableFuture<Communicator> each : List.of(own, other)) {
      PeerFailedException heard = refused(PeerFailedException.class, each);
      assertEquals(1, heard.rank());
      assertTrue(heard.problem().contains(thrown.problem()), heard::problem);
    }
    assertNothingStays();
  }

  /** Of its addresses a process has enough for its own heap, and not for another one. */
  @Test
  void aPeersHeapCannotBeMapped() throws Exception {
    long kib = (HostHeap.shareableBytes() >> 10) + (8L << 20);
    ChildJvm child = child(ChildJvm.startAfter("ulimit -v " + kib, RankMain.class));
    Held before = Held.now();
    refusedInChild(child, "cannot map the heap of rank 0");
    Held.assertNoMoreThan(before);
  }

  @Test
  void aProcessCannotHaveASharedHeap() throws Exception {
    ChildJvm child = child(ChildJvm.startAfter("ulimit -v " + (8L << 20), RankMain.class));
    for (int i = 0; i < 2; i++) {
      child.tell("threads");
      assertEquals("", child.expect("threads"));
    }
    UniqueId id = UniqueId.create(Backend.HOST);
    CompletableFuture<Communicator> own = joins(id, 2, 0);
    child.tell("join " + id + " 2 1");
    BackendUnavailableException heard = refused(BackendUnavailableException.class, own);
    assertTrue(heard.problem().startsWith("rank 1 "), heard::problem);
    assertTrue(heard.problem().contains("ENOMEM"), heard::problem);
    assertTrue(child.expect("failed").contains("ENOMEM"));
    assertNothingStays();
  }

  /** At whatever moment: what the survivors hold of the child communicator goes with the parent. */
  @Test
  @Timeout(value = 400, threadMode = ThreadMode.SEPARATE_THREAD)
  void aDeathInTheMiddleOfSplitLeavesNothing() throws Exception {
    long seed = new Random().nextLong();
    System.out.println("seed " + seed);
    Random random = new Random(seed);
    for (int i = 0; i < 4; i++) {
      child(ChildJvm.start(RankMain.class));
    }
    for (ChildJvm victim : children) {
      UniqueId id = UniqueId.create(Backend.HOST);
      CompletableFuture<Communicator> joining = joins(id, 2, 0);
      victim.tell("join " + id + " 2 1");
      try (Communicator own = joining.get(SOON.toMillis(), TimeUnit.MILLISECONDS)) {
        victim.expect("joined");
        CompletableFuture<NcclException> splitting =
            CompletableFuture.supplyAsync(
                () ->
                    assertThrows(
                        NcclException.class,
                        () -> {
                          while (true) {
                            own.split(0, 0).close();
                          }
                        }));
        victim.tell("dividing");
        victim.expect("dividing");
        Thread.sleep(random.nextInt(30), random.nextInt(1_000_000));
        victim.kill();
        splitting.get(20, TimeUnit.SECONDS);
      }
      assertTrue(victim.await() != 0);
      assertNothingStays();
    }
  }

  @Test
  void moreRanksThanThereCanBe() {
    for (int nranks : new int[] {Integer.MAX_VALUE, 257, 0, -1, Integer.MIN_VALUE}) {
      InvalidArgumentException e =
          assertThrows(
              InvalidArgumentException.class, () -> Communicator.initAll(Backend.HOST, nranks));
      assertTrue(e.problem().contains(Integer.toString(nranks)), e::problem);
      assertTrue(nranks < 1 || e.remedy().contains("256"), e::remedy);
    }
  }
}
