package io.nccl4j.internal.liveness;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.InvalidUsageException;
import io.nccl4j.SystemErrorException;
import io.nccl4j.bindings.Descriptors;
import io.nccl4j.bindings.Errno;
import io.nccl4j.bindings.Libc;
import io.nccl4j.bindings.Memory;
import io.nccl4j.bindings.RobustMutex;
import io.nccl4j.internal.bootstrap.ChildJvm;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Queue;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.IntConsumer;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class DeathWatchTest {
  private static final long LIMIT_MILLIS = 500;

  private final List<ChildJvm> children = new ArrayList<>();
  private final List<DeathWatch> watches = new ArrayList<>();
  private int fd = -1;
  private MemorySegment memory;

  /** A death as a watch of this process noticed it. */
  private record Death(int watcher, int process, long nanos) {}

  private final BlockingQueue<Death> deaths = new LinkedBlockingQueue<>();

  @BeforeEach
  void open() {
    Assumptions.assumeTrue(Libc.isAvailable(), Libc::unavailableReason);
    fd = Memory.memfdCreate("death-watch", Memory.MFD_CLOEXEC);
    Memory.ftruncate(fd, DeathWatchMain.BYTES);
    memory = DeathWatchMain.map(fd);
  }

  @AfterEach
  void close() {
    children.forEach(ChildJvm::close);
    watches.forEach(DeathWatchMain::end);
    if (fd >= 0) {
      Memory.munmap(memory);
      Descriptors.close(fd);
    }
  }

  private MemorySegment[] format(int count) {
    memory.fill((byte) 0);
    MemorySegment[] mutexes = DeathWatchMain.mutexes(memory, count);
    for (MemorySegment mutex : mutexes) {
      DeathWatch.format(mutex);
    }
    return mutexes;
  }

  private DeathWatch here(MemorySegment[] mutexes, int self) {
    DeathWatch watch =
        unheld(mutexes, self, k -> deaths.add(new Death(self, k, System.nanoTime())));
    watch.hold();
    return watch;
  }

  private DeathWatch unheld(MemorySegment[] mutexes, int self, IntConsumer dead) {
    DeathWatch watch =
        new DeathWatch(
            "test-watch-" + self,
            mutexes,
            self,
            k -> DeathWatchMain.left(memory, k),
            dead,
            e -> {
              throw new AssertionError(e);
            });
    watches.add(watch);
    return watch;
  }

  /** Starts children with these indices and waits until each holds its signal. */
  private void startChildren(int from, int count, int mebibytesOfFirst) throws Exception {
    String file = "/proc/" + ProcessHandle.current().pid() + "/fd/" + fd;
    for (int i = from; i < count; i++) {
      children.add(
          ChildJvm.start(DeathWatchMain.class, file, i, count, i == from ? mebibytesOfFirst : 0));
    }
    for (ChildJvm child : children) {
      child.expect("holding");
    }
  }

  private void tell(ChildJvm child, String line) throws Exception {
    child.tell(line);
    child.expect("done " + line);
  }

  private Death nextDeath() throws InterruptedException {
    Death death = deaths.poll(20, TimeUnit.SECONDS);
    assertTrue(death != null, "no death noticed");
    return death;
  }

  private void noDeath(long millis) throws InterruptedException {
    assertNull(deaths.poll(millis, TimeUnit.MILLISECONDS));
  }

  // ---------------------------------------------------------------- real processes

  @Test
  void killIsSeenQuicklyTenTimesInARow() throws Exception {
    int kills = 10;
    DeathWatch watch = here(format(kills + 1), 0);
    startChildren(1, kills + 1, 512);
    for (ChildJvm child : children) {
      tell(child, "watch");
    }
    watch.watch();
    double[] millis = new double[kills];
    for (int i = 0; i < kills; i++) {
      Thread.sleep(30);
      long start = System.nanoTime();
      children.get(i).kill();
      Death death = nextDeath();
      assertEquals(i + 1, death.process());
      millis[i] = (death.nanos() - start) / 1e6;
    }
    System.out.printf("first (512 MiB) %.3f ms%n", millis[0]);
    Arrays.sort(millis);
    System.out.printf("median %.3f ms, longest %.3f ms%n", millis[kills / 2], millis[kills - 1]);
    assertTrue(millis[kills - 1] < LIMIT_MILLIS, Arrays.toString(millis));
    noDeath(150);
  }

  @Test
  void leavingIsNotReported() throws Exception {
    DeathWatch watch = here(format(4), 0);
    startChildren(1, 4, 0);
    watch.watch();
    // In good order.
    tell(children.get(0), "publish");
    tell(children.get(0), "close");
    noDeath(250);
    // Published, then killed before it could release.
    tell(children.get(1), "publish");
    children.get(1).kill();
    noDeath(250);
    // Released without a word.
    tell(children.get(2), "close");
    assertEquals(3, nextDeath().process());
    noDeath(150);
  }

  @Test
  void everybodySeesEachDeath() throws Exception {
    format(4);
    startChildren(0, 4, 0);
    for (ChildJvm child : children) {
      tell(child, "watch");
    }
    Thread.sleep(50);
    List<ChildJvm> survivors = new ArrayList<>(children);
    for (int victim : new int[] {2, 3, 0}) {
      long start = System.nanoTime();
      children.get(victim).kill();
      survivors.remove(children.get(victim));
      for (ChildJvm survivor : survivors) {
        String[] death = survivor.expect("dead").split(" ");
        assertEquals(victim, Integer.parseInt(death[0]));
        long millis = (Long.parseLong(death[1]) - start) / 1_000_000;
        assertTrue(millis < LIMIT_MILLIS, millis + " ms");
      }
    }
    ChildJvm survivor = children.get(1);
    tell(survivor, "publish");
    tell(survivor, "close");
  }

  @Test
  void neighboursDieTogether() throws Exception {
    DeathWatch watch = here(format(4), 0);
    startChildren(1, 4, 0);
    for (ChildJvm child : children) {
      tell(child, "watch");
    }
    watch.watch();
    for (ChildJvm child : children) {
      child.kill();
    }
    assertEquals(
        Set.of(1, 2, 3),
        Set.of(nextDeath().process(), nextDeath().process(), nextDeath().process()));
  }

  @Test
  void deathBetweenHoldAndWatch() throws Exception {
    DeathWatch watch = here(format(2), 0);
    startChildren(1, 2, 0);
    children.get(0).kill();
    children.get(0).await();
    noDeath(50);
    watch.watch();
    assertEquals(1, nextDeath().process());
  }

  @Test
  void aStoppedProcessIsAliveAndHidesNoDeath() throws Exception {
    DeathWatch watch = here(format(3), 0);
    startChildren(1, 3, 0);
    for (ChildJvm child : children) {
      tell(child, "watch");
    }
    watch.watch();
    ChildJvm stopped = children.get(0);
    stopped.stop();
    Thread.sleep(50);
    long start = System.nanoTime();
    children.get(1).kill();
    Death death = nextDeath();
    assertEquals(2, death.process());
    long millis = (death.nanos() - start) / 1_000_000;
    assertTrue(millis < LIMIT_MILLIS, millis + " ms");
    noDeath(300);
    stopped.resume();
    assertTrue(stopped.expect("dead").startsWith("2 "));
    stopped.kill();
    assertEquals(1, nextDeath().process());
  }

  // ---------------------------------------------------------------- one process

  @Test
  void closeIsBounded() throws Exception {
    MemorySegment[] mutexes = format(2);
    DeathWatch first = here(mutexes, 0);
    DeathWatch second = here(mutexes, 1);
    assertThrows(InvalidUsageException.class, second::hold);
    first.watch();
    second.watch();
    Thread.sleep(20);
    DeathWatchMain.leave(memory, 0);
    DeathWatchMain.leave(memory, 1);
    long start = System.nanoTime();
    DeathWatchMain.end(first);
    DeathWatchMain.end(second);
    second.close();
    long millis = (System.nanoTime() - start) / 1_000_000;
    assertTrue(millis < 2_000, millis + " ms");
    for (MemorySegment mutex : mutexes) {
      assertEquals(0, RobustMutex.tryLock(mutex));
      assertEquals(0, RobustMutex.unlock(mutex));
    }
    noDeath(0);
    DeathWatch unused = unheld(mutexes, 0, k -> {});
    unused.close();
    assertTrue(unused.hasEnded());
    assertThrows(InvalidUsageException.class, unused::hold);
  }

  @Test
  void ownSignalThatCannotBeHad() {
    MemorySegment[] mutexes = format(1);
    DeathWatch watch = here(mutexes, 0);
    DeathWatch rival = unheld(mutexes, 0, k -> {});
    SystemErrorException e = assertThrows(SystemErrorException.class, rival::hold);
    assertTrue(e.getMessage().contains("EBUSY"), e.getMessage());
    DeathWatchMain.end(rival);
    DeathWatchMain.end(watch);
  }

  /**
   * Whatever a callback throws, the watch goes on, holds its own signal, and tells again what was
   * not heard. An interrupt does not matter either.
   */
  @Test
  void nothingEndsTheWatch() throws Exception {
    MemorySegment[] mutexes = format(4);
    Queue<Throwable> troubles =
        new ConcurrentLinkedQueue<>(
            List.of(
                new IllegalStateException("for the test"),
                new OutOfMemoryError("for the test"),
                new StackOverflowError("for the test"),
                new NoClassDefFoundError("for the test")));
    Set<Integer> noticed = ConcurrentHashMap.newKeySet();
    DeathWatch watch =
        unheld(
            mutexes,
            0,
            k -> {
              Throwable trouble = troubles.poll();
              Thread.currentThread().interrupt();
              if (trouble instanceof Error e) {
                throw e;
              } else if (trouble instanceof RuntimeException e) {
                throw e;
              }
              noticed.add(k);
            });
    watch.hold();
    watch.watch();
    long word = RobustMutex.wordOffset();
    while (noticed.size() < 3) {
      assertTrue(RobustMutex.isHeld(mutexes[0], word));
      Thread.onSpinWait();
    }
    assertEquals(Set.of(1, 2, 3), noticed);
    assertTrue(RobustMutex.isHeld(mutexes[0], word));
    DeathWatchMain.end(watch);
    assertFalse(RobustMutex.isHeld(mutexes[0], word));
  }

  /** Who starts it may be interrupted: that is no trouble with the mutex. */
  @Test
  void anInterruptDoesNotEndTheStart() throws Exception {
    MemorySegment[] mutexes = format(2);
    DeathWatch watch = unheld(mutexes, 0, k -> {});
    Thread.currentThread().interrupt();
    watch.hold();
    assertTrue(Thread.interrupted(), "the flag was cleared");
    assertTrue(RobustMutex.isHeld(mutexes[0], RobustMutex.wordOffset()));
    DeathWatchMain.end(watch);
  }

  /**
   * Watches of each other in which some members are mere threads that end while they hold their
   * signal. Every living member notices every death, nobody reports a living or leaving member.
   */
  @Test
  void randomDeathsAndLeavings() throws Exception {
    long seed = System.nanoTime();
    System.out.println("seed " + seed);
    Random random = new Random(seed);
    for (int round = 0; round < 40; round++) {
      int count = 3 + random.nextInt(6);
      MemorySegment[] mutexes = format(count);
      List<Integer> order = new ArrayList<>();
      for (int i = 1; i < count; i++) {
        order.add(i);
      }
      Collections.shuffle(order, random);
      Set<Integer> mortal = new HashSet<>(order.subList(0, 1 + random.nextInt(count - 1)));
      List<DeathWatch> living = new ArrayList<>();
      List<Mortal> threads = new ArrayList<>();
      for (int i = 0; i < count; i++) {
        if (mortal.contains(i)) {
          threads.add(new Mortal(mutexes[i]));
        } else {
          living.add(here(mutexes, i));
        }
      }
      living.forEach(DeathWatch::watch);
      Collections.shuffle(threads, random);
      for (Mortal thread : threads) {
        if (random.nextBoolean()) {
          LockSupport.parkNanos(random.nextInt(1_000_000));
        }
        thread.end.countDown();
      }
      Set<List<Integer>> noticed = new HashSet<>();
      while (noticed.size() < mortal.size() * living.size()) {
        Death death = nextDeath();
        assertTrue(mortal.contains(death.process()), death.toString());
        assertTrue(noticed.add(List.of(death.watcher(), death.process())), death.toString());
      }
      // The rest leaves, in some order, while others still watch.
      for (int i = 0; i < count; i++) {
        if (!mortal.contains(i)) {
          DeathWatchMain.leave(memory, i);
        }
      }
      living.forEach(DeathWatch::close);
      living.forEach(DeathWatchMain::end);
      noDeath(0);
      for (MemorySegment mutex : mutexes) {
        int error = RobustMutex.tryLock(mutex);
        assertTrue(error == 0 || error == Errno.EOWNERDEAD, Errno.name(error));
        assertEquals(0, RobustMutex.unlock(mutex));
      }
      watches.clear();
    }
    assertFalse(Thread.interrupted());
  }

  /** A thread that dies with its signal held. */
  private static final class Mortal {
    final CountDownLatch end = new CountDownLatch(1);

    Mortal(MemorySegment mutex) throws InterruptedException {
      CountDownLatch holds = new CountDownLatch(1);
      Thread.ofPlatform()
          .daemon()
          .start(
              () -> {
                assertEquals(0, RobustMutex.tryLock(mutex));
                holds.countDown();
                try {
                  end.await();
                } catch (InterruptedException e) {
                  throw new AssertionError(e);
                }
              });
      holds.await();
    }
  }
}
