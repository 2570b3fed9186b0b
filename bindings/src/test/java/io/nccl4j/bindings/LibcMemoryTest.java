package io.nccl4j.bindings;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Set;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Memory files, mappings and plain descriptors. */
class LibcMemoryTest {
  private static final long MIB = 1 << 20;
  private static final int READ_WRITE = Libc.PROT_READ | Libc.PROT_WRITE;
  private static final int NO_FD = 1_000_000_000;

  @TempDir Path directory;

  @BeforeEach
  void requireLibc() {
    LibcConditions.requireLibc();
  }

  private static int memoryFile(long bytes) {
    int fd = Libc.memfdCreate("nccl4j-test", Libc.MFD_CLOEXEC | Libc.MFD_ALLOW_SEALING);
    Libc.ftruncate(fd, bytes);
    return fd;
  }

  private static MemorySegment map(int fd, long bytes) {
    return Libc.mmap(bytes, READ_WRITE, Libc.MAP_SHARED | Libc.MAP_NORESERVE, fd, 0);
  }

  @Test
  void twoMappingsOfOneFileShareTheirBytes() {
    int fd = memoryFile(MIB);
    MemorySegment first = map(fd, MIB);
    MemorySegment second = map(fd, MIB);
    Libc.close(fd);
    assertNotEquals(first.address(), second.address());
    assertEquals(MIB, first.byteSize());
    first.set(JAVA_LONG, 8, 42);
    second.set(JAVA_LONG, MIB - 8, 43);
    assertEquals(42, second.get(JAVA_LONG, 8));
    assertEquals(43, first.get(JAVA_LONG, MIB - 8));
    Libc.munmap(first);
    Libc.munmap(second);
  }

  @Test
  void sealedFileCannotShrink() {
    int fd = memoryFile(MIB);
    assertEquals(0, Libc.getSeals(fd));
    Libc.addSeals(fd, Libc.F_SEAL_SHRINK | Libc.F_SEAL_SEAL);
    assertEquals(Libc.F_SEAL_SHRINK | Libc.F_SEAL_SEAL, Libc.getSeals(fd));
    Libc.ftruncate(fd, 2 * MIB);
    LibcException failure = LibcConditions.failsWithoutLeak(() -> Libc.ftruncate(fd, MIB));
    assertEquals("EPERM", failure.errnoName());
    assertEquals(
        Errno.EPERM,
        assertThrows(LibcException.class, () -> Libc.addSeals(fd, Libc.F_SEAL_GROW)).errno());
    Libc.close(fd);
  }

  @Test
  void fallocateTakesMemoryAndAHoleGivesItBack() {
    int fd = memoryFile(8 * MIB);
    assertEquals(0, Libc.fstat(fd).allocatedBytes());
    Libc.fallocate(fd, 0, 2 * MIB, 4 * MIB);
    assertEquals(4 * MIB, Libc.fstat(fd).allocatedBytes());
    MemorySegment memory = map(fd, 8 * MIB);
    memory.set(JAVA_BYTE, 2 * MIB, (byte) 7);
    Libc.fallocate(fd, Libc.FALLOC_FL_PUNCH_HOLE | Libc.FALLOC_FL_KEEP_SIZE, 2 * MIB, 4 * MIB);
    assertEquals(0, Libc.fstat(fd).allocatedBytes());
    assertEquals(8 * MIB, Libc.fstat(fd).size());
    assertEquals(0, memory.get(JAVA_BYTE, 2 * MIB));
    Libc.munmap(memory);
    Libc.close(fd);
  }

  @Test
  void advicesReturnTheirError() {
    int fd = memoryFile(8 * MIB);
    MemorySegment memory = map(fd, 8 * MIB);
    Set<Integer> known = Set.of(0, Errno.EINVAL);
    int populated = Libc.madvise(memory.asSlice(0, MIB), Libc.MADV_POPULATE_WRITE);
    assertTrue(known.contains(populated), Errno.name(populated));
    if (populated == 0) {
      assertTrue(Libc.fstat(fd).allocatedBytes() >= MIB);
    }
    assertEquals(0, Libc.madvise(memory, Libc.MADV_DONTNEED));
    assertNotEquals(0, Libc.madvise(memory.asSlice(1, 4096), Libc.MADV_DONTNEED));
    // Whether huge pages can be had is the machine's affair; the error must be a sensible one.
    int collapsed = Libc.madvise(memory, Libc.MADV_COLLAPSE);
    assertFalse(collapsed == Errno.EBADF || collapsed < 0, Errno.name(collapsed));
    int locked = Libc.mlock(memory.asSlice(0, 4096));
    assertTrue(Set.of(0, Errno.ENOMEM, Errno.EPERM, Errno.EAGAIN).contains(locked));
    Libc.munmap(memory);
    Libc.close(fd);
  }

  @Test
  void aFixedMappingReplacesAPartOfAnother() {
    long page = Libc.pageSize();
    assertEquals(1, Long.bitCount(page));
    MemorySegment reserved =
        Libc.mmap(4 * page, Libc.PROT_NONE, Libc.MAP_PRIVATE | Libc.MAP_ANONYMOUS, -1, 0);
    int fd = memoryFile(page);
    MemorySegment part =
        Libc.mmap(
            reserved.address() + page, page, READ_WRITE, Libc.MAP_SHARED | Libc.MAP_FIXED, fd, 0);
    assertEquals(reserved.address() + page, part.address());
    part.set(JAVA_LONG, 0, 5);
    assertEquals(5, reserved.get(JAVA_LONG, page));
    Libc.munmap(reserved);
    Libc.close(fd);
  }

  @Test
  void aMappingInAnArenaEndsWithIt() {
    int fd = memoryFile(MIB);
    MemorySegment memory;
    try (Arena arena = Arena.ofConfined()) {
      memory = MemoryAccess.mapped(arena, MIB, READ_WRITE, Libc.MAP_SHARED, fd, 0);
      memory.set(JAVA_LONG, 0, 1);
    }
    assertThrows(IllegalStateException.class, () -> memory.get(JAVA_LONG, 0));
    Arena closed = Arena.ofConfined();
    closed.close();
    assertThrows(
        IllegalStateException.class,
        () -> MemoryAccess.mapped(closed, MIB, READ_WRITE, Libc.MAP_SHARED, fd, 0));
    Libc.close(fd);
  }

  @Test
  void addressesGetASize() {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment memory = arena.allocate(16, 8);
      MemoryAccess.ofAddress(memory.address(), 16).set(JAVA_LONG, 8, 9);
      assertEquals(9, memory.get(JAVA_LONG, 8));
    }
    assertEquals(0, MemoryAccess.ofAddress(0, 0).byteSize());
    assertThrows(IllegalArgumentException.class, () -> MemoryAccess.ofAddress(0, 1));
    assertThrows(IllegalArgumentException.class, () -> MemoryAccess.ofAddress(8, -1));
  }

  @Test
  void failuresNameFunctionErrorAndAttempt() {
    LibcException failure =
        LibcConditions.failsWithoutLeak(
            () -> Libc.mmap(4096, READ_WRITE, Libc.MAP_SHARED, NO_FD, 0));
    assertEquals("mmap", failure.function());
    assertEquals(Errno.EBADF, failure.errno());
    assertEquals("EBADF", failure.errnoName());
    assertTrue(failure.attempt().contains("4096 bytes of fd " + NO_FD), failure.attempt());
    String message = failure.getMessage();
    assertTrue(message.startsWith("mmap failed with EBADF (9, "), message);
    assertTrue(message.endsWith(failure.attempt()), message);
    assertThrows(
        IllegalArgumentException.class,
        () -> Libc.mmap(-1, READ_WRITE, Libc.MAP_PRIVATE | Libc.MAP_ANONYMOUS, -1, 0));
  }

  @Test
  void failingCallsLeaveNoDescriptor() throws Exception {
    String tooLong = "x".repeat(300);
    assertEquals(
        Errno.EINVAL, LibcConditions.failsWithoutLeak(() -> Libc.memfdCreate(tooLong, 0)).errno());
    assertEquals(
        Errno.ENOENT,
        LibcConditions.failsWithoutLeak(
                () -> Libc.open(directory.resolve("none").toString(), Libc.O_RDONLY, 0))
            .errno());
    for (int errno :
        new int[] {
          LibcConditions.failsWithoutLeak(() -> Libc.dup(NO_FD)).errno(),
          LibcConditions.failsWithoutLeak(() -> Libc.close(NO_FD)).errno(),
          LibcConditions.failsWithoutLeak(() -> Libc.fstat(NO_FD)).errno(),
          LibcConditions.failsWithoutLeak(() -> Libc.getSeals(NO_FD)).errno(),
          LibcConditions.failsWithoutLeak(() -> Libc.eventfdWrite(NO_FD, 1)).errno(),
          LibcConditions.failsWithoutLeak(() -> Libc.eventfdRead(NO_FD)).errno(),
          LibcConditions.failsWithoutLeak(() -> Libc.fallocate(NO_FD, 0, 0, 1)).errno()
        }) {
      assertEquals(Errno.EBADF, errno);
    }
    assertEquals(Errno.EINVAL, LibcConditions.failsWithoutLeak(() -> Libc.eventfd(0, 0x2)).errno());
    assertEquals(Errno.EINVAL, LibcConditions.failsWithoutLeak(() -> Libc.pipe2(0x1)).errno());
  }

  @Test
  void filesAreReadWrittenAndIdentified() throws Exception {
    Path file = directory.resolve("file");
    int fd =
        Libc.open(file.toString(), Libc.O_RDWR | Libc.O_CREAT | Libc.O_EXCL | Libc.O_CLOEXEC, 0600);
    try (Arena arena = Arena.ofConfined()) {
      assertEquals(5, Libc.write(fd, arena.allocateFrom("hell")));
      assertEquals("hell\0", Files.readString(file));
      int again = Libc.open("/proc/self/fd/" + fd, Libc.O_RDONLY | Libc.O_CLOEXEC, 0);
      MemorySegment buffer = arena.allocate(16);
      assertEquals(5, Libc.read(again, buffer));
      assertEquals("hell", buffer.getString(0));
      assertEquals(0, Libc.read(again, buffer));
      int copy = Libc.dup(fd);
      assertNotEquals(fd, copy);
      FileStatus status = Libc.fstat(fd);
      assertEquals(5, status.size());
      assertEquals(Files.getAttribute(file, "unix:ino"), status.inode());
      assertEquals(status, Libc.fstat(copy));
      assertEquals(status, Libc.fstat(again));
      Libc.close(copy);
      Libc.close(again);
    }
    Libc.close(fd);
  }

  @Test
  void eventCounterAndPipeCarryValues() {
    int counter = Libc.eventfd(3, Libc.EFD_CLOEXEC | Libc.EFD_NONBLOCK);
    Libc.eventfdWrite(counter, 4);
    assertEquals(7, Libc.eventfdRead(counter));
    assertEquals(
        Errno.EAGAIN, assertThrows(LibcException.class, () -> Libc.eventfdRead(counter)).errno());
    Libc.close(counter);
    int[] pipe = Libc.pipe2(Libc.O_CLOEXEC);
    try (Arena arena = Arena.ofConfined()) {
      assertEquals(3, Libc.write(pipe[1], arena.allocateFrom("ab")));
      MemorySegment buffer = arena.allocate(8);
      assertEquals(3, Libc.read(pipe[0], buffer));
      assertEquals("ab", buffer.getString(0));
      Libc.close(pipe[0]);
      // The Java virtual machine ignores SIGPIPE: an error, not the end of the process.
      assertEquals(
          Errno.EPIPE,
          assertThrows(LibcException.class, () -> Libc.write(pipe[1], buffer)).errno());
    }
    Libc.close(pipe[1]);
  }

  @Test
  void heapMemoryIsRefused() {
    MemorySegment heap = MemorySegment.ofArray(new byte[8]);
    assertThrows(IllegalArgumentException.class, () -> Libc.read(0, heap));
    assertThrows(IllegalArgumentException.class, () -> Libc.robustMutexInit(heap));
  }
}
