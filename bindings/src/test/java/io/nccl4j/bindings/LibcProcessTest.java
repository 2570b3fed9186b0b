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
    assertEquals(ProcessHandle.current().pid(), Processes.getpid());
    assertEquals(Files.getAttribute(Path.of("/proc/self"), "unix:uid"), Processes.getuid());
  }

  @Test
  void everyThreadHasItsOwnNumber() throws Exception {
    FutureTask<Integer> other = new FutureTask<>(Processes::gettid);
    Thread.ofPlatform().name("gettid").start(other);
    assertNotEquals(Processes.gettid(), other.get());
    assertTrue(Files.exists(Path.of("/proc/self/task/" + Processes.gettid())));
  }

  @Test
  void aThreadCanBePinnedToOneProcessor() throws Exception {
    BitSet allowed = Processors.schedGetaffinity();
    assertFalse(allowed.isEmpty());
    int last = allowed.length() - 1;
    FutureTask<Integer> pinned =
        new FutureTask<>(
            () -> {
              BitSet one = new BitSet();
              one.set(last);
              Processors.schedSetaffinity(one);
              assertEquals(one, Processors.schedGetaffinity());
              return Processors.schedGetcpu();
            });
    Thread.ofPlatform().name("pinned").start(pinned);
    assertEquals(last, pinned.get());
    assertEquals(allowed, Processors.schedGetaffinity());
    LibcException failure =
        assertThrows(LibcException.class, () -> Processors.schedSetaffinity(new BitSet()));
    assertEquals("sched_setaffinity", failure.function());
    assertEquals(Errno.EINVAL, failure.errno());
  }

  @Test
  void virtualThreadsMustNotMoveTheirCarrier() throws Exception {
    FutureTask<BitSet> pinned =
        new FutureTask<>(
            () -> {
              BitSet allowed = Processors.schedGetaffinity();
              assertThrows(IllegalStateException.class, () -> Processors.schedSetaffinity(allowed));
              return allowed;
            });
    Thread.ofVirtual().start(pinned);
    assertFalse(pinned.get().isEmpty());
  }

  @Test
  void signalZeroTellsWhetherAProcessExists() throws Exception {
    Process child = new ProcessBuilder("sleep", "60").start();
    int pid = (int) child.pid();
    assertTrue(Processes.processExists(pid));
    assertEquals(0, Processes.kill(pid, Processes.SIGKILL));
    assertEquals(128 + Processes.SIGKILL, child.waitFor());
    assertFalse(Processes.processExists(pid));
    assertEquals(Errno.ESRCH, Processes.kill(pid, 0));
    assertThrows(IllegalArgumentException.class, () -> Processes.kill(0, 0));
    assertThrows(IllegalArgumentException.class, () -> Processes.kill(-1, 0));
  }

  @Test
  void aProcessDescriptorBecomesReadableAtItsEnd() throws Exception {
    Process child = new ProcessBuilder("sleep", "60").start();
    int fd;
    try {
      fd = Processes.pidfdOpen((int) child.pid());
    } catch (LibcException e) {
      child.destroyForcibly();
      assertTrue(Set.of(Errno.ENOSYS, Errno.EPERM).contains(e.errno()), e.getMessage());
      return;
    }
    assertEquals(0, Descriptors.poll(fd, Descriptors.POLLIN, 0));
    child.destroyForcibly();
    assertEquals(
        Descriptors.POLLIN, Descriptors.poll(fd, Descriptors.POLLIN, 10_000) & Descriptors.POLLIN);
    Descriptors.close(fd);
    child.waitFor();
    int pid = (int) child.pid();
    assertEquals(
        Errno.ESRCH, LibcConditions.failsWithoutLeak(() -> Processes.pidfdOpen(pid)).errno());
  }
}
