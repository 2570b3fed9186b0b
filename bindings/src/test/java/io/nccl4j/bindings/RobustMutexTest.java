package io.nccl4j.bindings;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.List;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.FutureTask;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Robust mutexes between threads and processes. */
class RobustMutexTest {
  private static final long SECOND = 1_000_000_000L;
  private static final int READ_WRITE = Memory.PROT_READ | Memory.PROT_WRITE;

  private int fd;
  private MemorySegment page;
  private MemorySegment mutex;

  /** The process that dies: locks the mutex in the given file and never lets go. */
  static final class Holder {
    private Holder() {}

    public static void main(String[] arguments) throws Exception {
      int fd = Descriptors.open(arguments[0], Descriptors.O_RDWR | Descriptors.O_CLOEXEC, 0);
      MemorySegment page = Memory.mmap(4096, READ_WRITE, Memory.MAP_SHARED, fd, 0);
      System.out.println(Errno.name(RobustMutex.tryLock(page.asSlice(128, RobustMutex.BYTES))));
      Thread.sleep(60_000);
    }
  }

  @BeforeEach
  void createMutex() {
    LibcConditions.requireLibc();
    fd = Memory.memfdCreate("mutex", Memory.MFD_CLOEXEC);
    Memory.ftruncate(fd, 4096);
    page = Memory.mmap(4096, READ_WRITE, Memory.MAP_SHARED, fd, 0);
    mutex = page.asSlice(128, RobustMutex.BYTES);
    RobustMutex.init(mutex);
  }

  @AfterEach
  void removeMutex() {
    if (page != null) {
      Memory.munmap(page);
      Descriptors.close(fd);
    }
  }

  private static int inOtherThread(Callable<Integer> call) throws Exception {
    FutureTask<Integer> task = new FutureTask<>(call);
    Thread thread = Thread.ofPlatform().name("other").start(task);
    int result = task.get();
    thread.join();
    return result;
  }

  @Test
  void isTakenForOneWhateverItsStateButNotForAnother() {
    assertTrue(RobustMutex.isOne(mutex));
    assertEquals(0, RobustMutex.tryLock(mutex));
    assertTrue(RobustMutex.isOne(mutex));
    assertEquals(0, RobustMutex.unlock(mutex));
    assertTrue(RobustMutex.isOne(mutex));
    assertFalse(RobustMutex.isOne(page.asSlice(512, RobustMutex.BYTES)));
    mutex.fill((byte) 0x5f);
    assertFalse(RobustMutex.isOne(mutex));
  }

  @Test
  void errorsAreReturned() throws Exception {
    assertEquals(0, RobustMutex.tryLock(mutex));
    // The C libraries differ here.
    assertTrue(Set.of(Errno.EBUSY, Errno.EDEADLK).contains(RobustMutex.tryLock(mutex)));
    assertEquals(Errno.EBUSY, inOtherThread(() -> RobustMutex.tryLock(mutex)));
    assertEquals(Errno.EPERM, inOtherThread(() -> RobustMutex.unlock(mutex)));
    assertEquals(0, RobustMutex.unlock(mutex));
    assertEquals(Errno.EPERM, RobustMutex.unlock(mutex));
  }

  @Test
  void everybodySeesWhetherItIsHeld() throws Exception {
    long word = RobustMutex.wordOffset();
    assertFalse(RobustMutex.isHeld(mutex, word));
    assertEquals(0, RobustMutex.tryLock(mutex));
    assertTrue(RobustMutex.isHeld(mutex, word));
    assertEquals(1, inOtherThread(() -> RobustMutex.isHeld(mutex, word) ? 1 : 0));
    assertEquals(0, RobustMutex.unlock(mutex));
    assertFalse(RobustMutex.isHeld(mutex, word));
  }

  @Test
  void theEndOfAThreadIsNoticed() throws Exception {
    long word = RobustMutex.wordOffset();
    assertEquals(0, inOtherThread(() -> RobustMutex.tryLock(mutex)));
    // The kernel marks the mutex when the thread ends, shortly after Java has seen it end.
    awaitFree(word);
    assertEquals(Errno.EOWNERDEAD, RobustMutex.tryLock(mutex));
    assertEquals(0, RobustMutex.unlock(mutex));
    assertEquals(Errno.ENOTRECOVERABLE, RobustMutex.tryLock(mutex));
  }

  /** Returns when. */
  private long awaitFree(long word) {
    long end = System.nanoTime() + 30 * SECOND;
    while (RobustMutex.isHeld(mutex, word)) {
      assertTrue(System.nanoTime() < end, "still held after 30 s");
      Thread.onSpinWait();
    }
    return System.nanoTime();
  }

  @Test
  void theDeathOfAProcessIsNoticedAtOnce() throws Exception {
    String file = "/proc/" + ProcessHandle.current().pid() + "/fd/" + fd;
    Process child =
        LibcConditions.startJava(List.of("--enable-native-access=ALL-UNNAMED"), Holder.class, file);
    try (BufferedReader output = child.inputReader()) {
      assertEquals("errno 0", output.readLine());
      assertEquals(Errno.EBUSY, RobustMutex.tryLock(mutex));
      long word = RobustMutex.wordOffset();
      assertTrue(RobustMutex.isHeld(mutex, word));
      long killed = System.nanoTime();
      child.destroyForcibly();
      long micros = (awaitFree(word) - killed) / 1000;
      System.out.println("death of a process noticed after " + micros + " us");
      assertTrue(micros < 100_000, micros + " us");
      assertEquals(Errno.EOWNERDEAD, RobustMutex.tryLock(mutex));
    } finally {
      child.destroyForcibly().waitFor();
    }
  }

  @Test
  void virtualThreadsAreRefused() throws Exception {
    FutureTask<Void> task =
        new FutureTask<>(
            () -> {
              assertThrows(IllegalStateException.class, () -> RobustMutex.tryLock(mutex));
              assertThrows(IllegalStateException.class, () -> RobustMutex.unlock(mutex));
              return null;
            });
    Thread.ofVirtual().start(task);
    task.get();
  }

  @Test
  void unsuitableMemoryIsRefused() {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment memory = arena.allocate(128, 8);
      assertThrows(IllegalArgumentException.class, () -> RobustMutex.init(memory.asSlice(0, 63)));
      assertThrows(IllegalArgumentException.class, () -> RobustMutex.init(memory.asSlice(4, 64)));
      assertThrows(IllegalArgumentException.class, () -> RobustMutex.init(memory.asReadOnly()));
    }
  }
}
