package io.nccl4j.internal.host;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.NcclException;
import io.nccl4j.PeerFailedException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.bootstrap.ChildJvm;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;

/**
 * SIGKILL of a rank's process: every other rank learns which one it was, fast, and nothing of it
 * stays behind.
 */
@Tag("process")
@Timeout(value = 120, threadMode = ThreadMode.SEPARATE_THREAD)
class PeerDeathTest {
  /** What one detection may take on a busy machine. */
  private static final double WORST_MILLIS = 500;

  /** What half of all detections must stay below. */
  private static final double MEDIAN_MILLIS = 50;

  private final List<ChildJvm> children = new ArrayList<>();

  private final List<Throwable> uncaught = Collections.synchronizedList(new ArrayList<>());

  @BeforeEach
  void noteUncaught() {
    Thread.setDefaultUncaughtExceptionHandler((thread, e) -> uncaught.add(e));
  }

  @AfterEach
  void endChildren() {
    Thread.setDefaultUncaughtExceptionHandler(null);
    children.forEach(ChildJvm::close);
    assertEquals(List.of(), uncaught, "by the threads that watch the other processes");
  }

  private ChildJvm child() throws Exception {
    ChildJvm child = ChildJvm.start(RankMain.class);
    children.add(child);
    return child;
  }

  /** Lets all children join as ranks 1, 2 …; this process is rank 0. */
  private Communicator join(List<ChildJvm> ranks) throws Exception {
    return join(ranks, HostRanks.patient().build());
  }

  private static Communicator join(List<ChildJvm> ranks, CommunicatorConfig config)
      throws Exception {
    UniqueId id = UniqueId.create(Backend.HOST);
    for (int i = 0; i < ranks.size(); i++) {
      ranks.get(i).tell("join " + id + " " + (ranks.size() + 1) + " " + (i + 1));
    }
    Communicator own =
        Communicator.initRank(Device.get(Backend.HOST, 0), ranks.size() + 1, id, 0, config);
    for (ChildJvm rank : ranks) {
      rank.expect("joined");
    }
    return own;
  }

  private static double millis(long from, long to) {
    return (to - from) / 1e6;
  }

  /**
   * Four processes and this one; one after the other is killed in a loop of sums, and the rest go
   * on in a new communicator until only this one is left.
   */
  private List<Double> killOneAfterTheOther(int processes, int count) throws Exception {
    List<ChildJvm> living = new ArrayList<>();
    for (int i = 0; i < processes; i++) {
      living.add(child());
    }
    for (ChildJvm child : living) {
      child.expect("ready");
    }
    List<Double> times = new ArrayList<>();
    while (!living.isEmpty()) {
      Communicator own = join(living);
      CompletableFuture<Long> failed = CompletableFuture.supplyAsync(() -> loop(own, count));
      for (ChildJvm child : living) {
        child.tell("loop " + count);
      }
      for (ChildJvm child : living) {
        child.expect("looping");
      }
      int victim = living.size() / 2;
      long start = System.nanoTime();
      living.get(victim).kill();
      times.add(millis(start, failed.get(20, TimeUnit.SECONDS)));
      PeerFailedException e = (PeerFailedException) own.failure().orElseThrow();
      assertEquals(victim + 1, e.rank(), e.getMessage());
      living.remove(victim);
      for (ChildJvm survivor : living) {
        times.add(millis(start, failedNaming(survivor, victim + 1)));
        survivor.tell("close");
        survivor.expect("closed");
      }
      own.close();
    }
    return times;
  }

  /** Without any call or stream: it would be told late, or never. */
  @Test
  void anIdleRankIsToldByItsListener() throws Exception {
    ChildJvm peer = child();
    peer.expect("ready");
    CompletableFuture<NcclException> told = new CompletableFuture<>();
    CommunicatorConfig config =
        HostRanks.patient().onFailure((communicator, failure) -> told.complete(failure)).build();
    try (Communicator own = join(List.of(peer), config)) {
      peer.kill();
      NcclException failure = told.get(20, TimeUnit.SECONDS);
      assertInstanceOf(PeerFailedException.class, failure);
      assertEquals(List.of(1), failure.failedRanks());
      assertEquals(Communicator.State.FAILED, own.state());
    }
  }

  /** Returns when it failed. */
  private static long loop(Communicator communicator, int count) {
    try (DeviceBuffer in = communicator.device().allocate(DataType.INT32, count);
        DeviceBuffer out = communicator.device().allocate(DataType.INT32, count);
        Stream stream = communicator.device().newStream()) {
      while (true) {
        communicator.allReduce(in, out, count, DataType.INT32, ReduceOp.SUM, stream);
        stream.synchronize();
      }
    } catch (NcclException e) {
      return System.nanoTime();
    }
  }

  private static double median(List<Double> times) {
    return times.stream().sorted().toList().get(times.size() / 2);
  }

  private static void judge(List<Double> times) {
    List<Double> sorted = times.stream().sorted().toList();
    double median = median(times);
    System.out.printf(
        "%d detections: median %.1f ms, best %.1f ms, worst %.1f ms%n",
        sorted.size(), median, sorted.getFirst(), sorted.getLast());
    assertTrue(median < MEDIAN_MILLIS, sorted::toString);
    assertTrue(sorted.getLast() < WORST_MILLIS, sorted::toString);
  }

  @Test
  void everySurvivorLearnsWhoDied() throws Exception {
    Held before = Held.now();
    List<Double> times = new ArrayList<>();
    times.addAll(killOneAfterTheOther(3, 2));
    for (int i = 0; i < 2; i++) {
      times.addAll(killOneAfterTheOther(1, i % 2 == 0 ? 2 : 100_000));
    }
    judge(times);
    Held.assertNoMoreThan(before);
  }

  /**
   * Processes are killed one after the other, each time also the one that holds the control block;
   * the rest goes on, at last this one alone.
   */
  @Test
  void theRestGoesOn() throws Exception {
    Held before = Held.now();
    List<ChildJvm> living = new ArrayList<>();
    for (int i = 0; i < 3; i++) {
      living.add(child());
      living.getLast().expect("ready");
    }
    UniqueId id = UniqueId.create(Backend.HOST);
    int nranks = living.size() + 1;
    for (int i = 0; i < living.size(); i++) {
      living.get(i).tell("join " + id + " " + nranks + " " + i);
    }
    CommunicatorConfig config = HostRanks.patient().build();
    Communicator own =
        Communicator.initRank(Device.get(Backend.HOST, 0), nranks, id, nranks - 1, config);
    for (ChildJvm rank : living) {
      rank.expect("joined");
    }
    while (!living.isEmpty()) {
      Communicator failing = own;
      int count = living.size() == 2 ? 100_000 : 2;
      CompletableFuture<Long> failed = CompletableFuture.supplyAsync(() -> loop(failing, count));
      for (ChildJvm child : living) {
        child.tell("loop " + count);
      }
      for (ChildJvm child : living) {
        child.expect("looping");
      }
      living.removeFirst().kill();
      long ignored = failed.get(20, TimeUnit.SECONDS);
      for (ChildJvm child : living) {
        child.expect("failed");
        child.tell("survive 20000");
      }
      own = failing.survivors(Duration.ofSeconds(20));
      failing.close();
      assertEquals(living.size() + 1, own.nranks());
      assertEquals(living.size(), own.rank());
      for (int i = 0; i < living.size(); i++) {
        assertEquals(i + " of " + own.nranks(), living.get(i).expect("left"));
      }
    }
    int[] alone = {5};
    own.allReduce(alone, ReduceOp.SUM);
    assertEquals(5, alone[0]);
    own.close();
    Held.assertNoMoreThan(before);
  }

  /** From outside, a stopped process looks like one that hangs. */
  @Test
  void whoIsStoppedIsSaidToBe() throws Exception {
    ChildJvm stopped = child();
    stopped.expect("ready");
    CommunicatorConfig config = HostRanks.patient().operationTimeout(Duration.ofSeconds(1)).build();
    try (Communicator own = join(List.of(stopped), config)) {
      stopped.stop();
      NcclException e =
          assertThrows(NcclException.class, () -> own.allReduce(new int[1], ReduceOp.SUM));
      String where = "waiting for rank 1 (process " + stopped.pid() + ", which is stopped; it has";
      assertTrue(e.problem().contains(where), e::problem);
      stopped.resume();
    }
  }

  /** A process that stands still does not hold up the others for ever; it finds them gone. */
  @Test
  void whoIsStoppedIsLeftBehind() throws Exception {
    ChildJvm stopped = child();
    ChildJvm victim = child();
    ChildJvm other = child();
    for (ChildJvm child : List.of(stopped, victim, other)) {
      child.expect("ready");
    }
    Communicator failed = join(List.of(stopped, victim, other));
    stopped.stop();
    victim.kill();
    other.tell("loop 2");
    other.expect("failed");
    other.tell("survive 20000");
    assertThrows(NcclException.class, () -> failed.allReduce(new int[1], ReduceOp.SUM));
    try (Communicator left = failed.survivors(Duration.ofMillis(300))) {
      assertEquals("1 of 2", other.expect("left"));
      failed.close();
      assertEquals(2, left.nranks());
      stopped.resume();
      stopped.tell("loop 2");
      stopped.expect("failed");
      stopped.tell("survive 20000");
      String refused = stopped.expect("failed");
      assertTrue(refused.contains("without rank 1"), refused);
    }
  }

  @Tag("long")
  @Timeout(1800)
  @Test
  void everySurvivorLearnsWhoDiedForLong() throws Exception {
    Held before = Held.now();
    List<Double> times = new ArrayList<>();
    for (int i = 0; i < 25; i++) {
      times.addAll(killOneAfterTheOther(4, i % 2 == 0 ? 2 : 100_000));
    }
    judge(times);
    Held.assertNoMoreThan(before);
  }

  /** Beside other tests, survivors may wait long for a processor: they get three tries. */
  @Test
  void aStoppedProcessHidesNoDeath() throws Exception {
    List<Double> times = killWhileOneIsStopped(4);
    for (int tries = 1; tries < 3 && median(times) >= MEDIAN_MILLIS; tries++) {
      times = killWhileOneIsStopped(4);
    }
    judge(times);
  }

  /** What the survivors may take, nearly always. */
  @Tag("long")
  @Timeout(600)
  @Test
  void aStoppedProcessHidesNoDeathForLong() throws Exception {
    List<Double> times = killWhileOneIsStopped(200);
    judge(times);
    List<Double> sorted = times.stream().sorted().toList();
    double p99 = sorted.get((int) (sorted.size() * 0.99));
    System.out.printf("99 %% of them within %.1f ms%n", p99);
    assertTrue(p99 <= 50, () -> p99 + " ms");
  }

  /**
   * Four processes in a loop of sums: one is stopped, another killed. The two others learn of it
   * while the one is stopped, which learns of it when it goes on. Returns their times, in ms from
   * the kill, or from the going on.
   */
  private List<Double> killWhileOneIsStopped(int kills) throws Exception {
    int processes = 4;
    List<ChildJvm> ranks = new ArrayList<>();
    List<Double> times = new ArrayList<>();
    List<Double> afterwards = new ArrayList<>();
    for (int kill = 0; kill < kills; kill++) {
      List<ChildJvm> fresh = new ArrayList<>();
      while (ranks.size() + fresh.size() < processes) {
        fresh.add(child());
      }
      for (ChildJvm child : fresh) {
        child.expect("ready");
        ranks.add(child);
      }
      String id = UniqueId.create(Backend.HOST).toString();
      for (int r = 0; r < processes; r++) {
        ranks.get(r).tell("join " + id + " " + processes + " " + r);
      }
      for (ChildJvm rank : ranks) {
        rank.expect("joined");
        rank.tell("loop 2");
      }
      for (ChildJvm rank : ranks) {
        rank.expect("looping");
      }
      int dead = kill % processes;
      // Before, after and opposite the one that dies, in this order.
      int asleep = (dead + new int[] {3, 1, 2}[kill / processes % 3]) % processes;
      ChildJvm stopped = ranks.get(asleep);
      ChildJvm victim = ranks.get(dead);
      stopped.stop();
      Thread.sleep(20);
      long start = System.nanoTime();
      victim.kill();
      ranks.remove(victim);
      for (ChildJvm survivor : ranks) {
        if (survivor != stopped) {
          times.add(millis(start, failedNaming(survivor, dead)));
        }
      }
      long goesOn = System.nanoTime();
      stopped.resume();
      afterwards.add(millis(goesOn, failedNaming(stopped, dead)));
      for (ChildJvm survivor : ranks) {
        survivor.tell("close");
        survivor.expect("closed");
      }
    }
    System.out.printf("the stopped ones: ");
    judge(afterwards);
    return times;
  }

  /** When a rank failed because of this one. */
  private static long failedNaming(ChildJvm rank, int dead) throws Exception {
    String[] words = rank.expect("failed").split(" ", 4);
    assertEquals("PeerFailedException", words[1], words[3]);
    assertEquals(dead, Integer.parseInt(words[2]), words[3]);
    return Long.parseLong(words[0]);
  }

  @Test
  void aDeathWhileIdleShowsInTheStateAndInTheNextOperation() throws Exception {
    ChildJvm other = child();
    ChildJvm victim = child();
    Held before = Held.now();
    Communicator own = join(List.of(other, victim));
    long start = System.nanoTime();
    victim.kill();
    while (own.state() == Communicator.State.READY) {
      Thread.onSpinWait();
    }
    double millis = millis(start, System.nanoTime());
    assertTrue(millis < WORST_MILLIS, millis + " ms");
    assertEquals(2, ((PeerFailedException) own.failure().orElseThrow()).rank());
    other.tell("loop 2");
    assertTrue(other.expect("failed").contains("rank 2"));
    other.tell("close");
    other.expect("closed");
    own.close();
    Held.assertNoMoreThan(before);
  }

  /**
   * This rank has left in good order before the other dies without leaving: nobody watches it then.
   */
  @Test
  void aDeathAfterLeavingLeavesNothingEither() throws Exception {
    ChildJvm victim = child();
    Held before = Held.now();
    Communicator own = join(List.of(victim));
    own.close();
    victim.kill();
    int ignored = victim.await();
    Held.assertNoMoreThan(before);
  }

  /**
   * At whatever moment: nobody hangs, whoever gets a communicator finds it failed, and nothing
   * stays.
   */
  @Test
  void aDeathDuringInitialisationEndsItForAll() throws Exception {
    long seed = new Random().nextLong();
    System.out.println("seed " + seed);
    Random random = new Random(seed);
    CommunicatorConfig config = HostRanks.patient().initTimeout(Duration.ofSeconds(1)).build();
    int kills = 4;
    for (int i = 0; i < kills; i++) {
      child().expect("ready");
    }
    Held before = Held.now();
    for (ChildJvm victim : children) {
      UniqueId id = UniqueId.create(Backend.HOST);
      CompletableFuture<Communicator> own =
          CompletableFuture.supplyAsync(
              () -> Communicator.initRank(Device.get(Backend.HOST, 0), 2, id, 0, config));
      victim.tell("join " + id + " 2 1");
      long end = System.nanoTime() + random.nextInt(1_000_000_000);
      while (System.nanoTime() < end && !own.isDone()) {
        LockSupport.parkNanos(50_000);
      }
      victim.kill();
      String outcome;
      try (Communicator communicator = own.get(20, TimeUnit.SECONDS)) {
        while (communicator.state() == Communicator.State.READY) {
          LockSupport.parkNanos(50_000);
        }
        outcome = communicator.failure().orElseThrow().getMessage();
      } catch (ExecutionException e) {
        outcome = e.getCause().getMessage();
      }
      assertTrue(outcome.contains("rank 1 "), outcome);
      System.out.println(outcome);
    }
    Held.assertNoMoreThan(before);
  }

  /** All that died are named: at once if their deaths are seen together, else by the next calls. */
  @Test
  void allThatDiedAreNamed() throws Exception {
    ChildJvm first = child();
    ChildJvm survivor = child();
    ChildJvm second = child();
    Held before = Held.now();
    Communicator own = join(List.of(first, survivor, second));
    first.kill();
    second.kill();
    List<Integer> both = List.of(1, 3);
    long start = System.nanoTime();
    while (own.state() == Communicator.State.READY
        || !own.failure().orElseThrow().failedRanks().equals(both)) {
      assertTrue(millis(start, System.nanoTime()) < 10 * WORST_MILLIS, () -> "" + own.failure());
      Thread.sleep(1);
    }
    String message = own.failure().orElseThrow().getMessage();
    assertTrue(message.contains("rank 1 of") && message.contains("rank 3 of"), message);
    try (Stream stream = own.device().newStream()) {
      PeerFailedException e = assertThrows(PeerFailedException.class, () -> own.barrier(stream));
      assertEquals(both, e.failedRanks(), e::getMessage);
    }
    survivor.tell("loop 2");
    assertTrue(survivor.expect("failed").contains("PeerFailedException"));
    survivor.tell("close");
    survivor.expect("closed");
    own.close();
    Held.assertNoMoreThan(before);
  }

  @Test
  void aDeathDuringSplitEndsItForAll() throws Exception {
    ChildJvm other = child();
    ChildJvm victim = child();
    Held before = Held.now();
    Communicator own = join(List.of(other, victim));
    other.tell("split 0");
    CompletableFuture<Throwable> splitting =
        CompletableFuture.supplyAsync(
            () -> assertThrows(NcclException.class, () -> own.split(0, 0)));
    victim.kill();
    NcclException thrown = (NcclException) splitting.get(20, TimeUnit.SECONDS);
    PeerFailedException e = assertInstanceOf(PeerFailedException.class, thrown);
    assertEquals(2, e.rank());
    assertTrue(other.expect("failed").contains("rank 2"));
    other.tell("close");
    other.expect("closed");
    own.close();
    Held.assertNoMoreThan(before);
  }
}
