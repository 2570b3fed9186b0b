package io.nccl4j.bindings;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.BitSet;
import java.util.concurrent.FutureTask;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Processors, users and threads. */
class LibcProcessTest {
  @BeforeEach
  void requireLibc() {
    LibcConditions.requireLibc();
  }

  @Test
  void userIsThatOfJava() throws Exception {
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
}
