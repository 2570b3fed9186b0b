package io.nccl4j.bindings;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.BitSet;
import java.util.Set;
import java.util.concurrent.FutureTask;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Processors, processes and threads. */
class LibcProcessTest {
  @BeforeEach
  void requireLibc() {
    LibcConditions.requireLibc();
  }

  @Test
  void processAndUserAreThoseOfJava() throws Exception {
    assertEquals(ProcessHandle.current().pid(), Libc.getpid());
    assertEquals(Files.getAttribute(Path.of("/proc/self"), "unix:uid"), Libc.getuid());
  }

  @Test
  void everyThreadHasItsOwnNumber() throws Exception {
    FutureTask<Integer> other = new FutureTask<>(Libc::gettid);
    Thread.ofPlatform().name("gettid").start(other);
    assertNotEquals(Libc.gettid(), other.get());
    assertTrue(Files.exists(Path.of("/proc/self/task/" + Libc.gettid())));
  }

  @Test
  void aThreadCanBePinnedToOneProcessor() throws Exception {
    BitSet allowed = Libc.schedGetaffinity();
    assertFalse(allowed.isEmpty());
    int last = allowed.length() - 1;
    FutureTask<Integer> pinned =
        new FutureTask<>(
            () -> {
              BitSet one = new BitSet();
              one.set(last);
              Libc.schedSetaffinity(one);
              assertEquals(one, Libc.schedGetaffinity());
              return Libc.schedGetcpu();
            });
    Thread.ofPlatform().name("pinned").start(pinned);
    assertEquals(last, pinned.get());
    assertEquals(allowed, Libc.schedGetaffinity());
    LibcException failure =
        assertThrows(LibcException.class, () -> Libc.schedSetaffinity(new BitSet()));
    assertEquals("sched_setaffinity", failure.function());
    assertEquals(Errno.EINVAL, failure.errno());
  }

  @Test
  void virtualThreadsMustNotMoveTheirCarrier() throws Exception {
    FutureTask<BitSet> pinned =
        new FutureTask<>(
            () -> {
              BitSet allowed = Libc.schedGetaffinity();
              assertThrows(IllegalStateException.class, () -> Libc.schedSetaffinity(allowed));
              return allowed;
            });
    Thread.ofVirtual().start(pinned);
    assertFalse(pinned.get().isEmpty());
  }

  @Test
  void signalZeroTellsWhetherAProcessExists() throws Exception {
    Process child = new ProcessBuilder("sleep", "60").start();
    int pid = (int) child.pid();
    assertTrue(Libc.processExists(pid));
    assertEquals(0, Libc.kill(pid, Libc.SIGKILL));
    assertEquals(128 + Libc.SIGKILL, child.waitFor());
    assertFalse(Libc.processExists(pid));
    assertEquals(Errno.ESRCH, Libc.kill(pid, 0));
    assertThrows(IllegalArgumentException.class, () -> Libc.kill(0, 0));
    assertThrows(IllegalArgumentException.class, () -> Libc.kill(-1, 0));
  }

  @Test
  void aProcessDescriptorBecomesReadableAtItsEnd() throws Exception {
    Process child = new ProcessBuilder("sleep", "60").start();
    int fd;
    try {
      fd = Libc.pidfdOpen((int) child.pid());
    } catch (LibcException e) {
      child.destroyForcibly();
      assertTrue(Set.of(Errno.ENOSYS, Errno.EPERM).contains(e.errno()), e.getMessage());
      return;
    }
    assertEquals(0, Libc.poll(fd, Libc.POLLIN, 0));
    child.destroyForcibly();
    assertEquals(Libc.POLLIN, Libc.poll(fd, Libc.POLLIN, 10_000) & Libc.POLLIN);
    Libc.close(fd);
    child.waitFor();
    int pid = (int) child.pid();
    assertEquals(Errno.ESRCH, LibcConditions.failsWithoutLeak(() -> Libc.pidfdOpen(pid)).errno());
  }
}
