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
  private static final int READ_WRITE = Memory.PROT_READ | Memory.PROT_WRITE;
  private static final int NO_FD = 1_000_000_000;

  @TempDir Path directory;

  @BeforeEach
  void requireLibc() {
    LibcConditions.requireLibc();
  }

  private static int memoryFile(long bytes) {
    int fd = Memory.memfdCreate("nccl4j-test", Memory.MFD_CLOEXEC | Memory.MFD_ALLOW_SEALING);
    Memory.ftruncate(fd, bytes);
    return fd;
  }

  private static MemorySegment map(int fd, long bytes) {
    return Memory.mmap(bytes, READ_WRITE, Memory.MAP_SHARED | Memory.MAP_NORESERVE, fd, 0);
  }

  @Test
  void twoMappingsOfOneFileShareTheirBytes() {
    int fd = memoryFile(MIB);
    MemorySegment first = map(fd, MIB);
    MemorySegment second = map(fd, MIB);
    Descriptors.close(fd);
    assertNotEquals(first.address(), second.address());
    assertEquals(MIB, first.byteSize());
    first.set(JAVA_LONG, 8, 42);
    second.set(JAVA_LONG, MIB - 8, 43);
    assertEquals(42, second.get(JAVA_LONG, 8));
    assertEquals(43, first.get(JAVA_LONG, MIB - 8));
    Memory.munmap(first);
    Memory.munmap(second);
  }

  @Test
  void sealedFileCannotShrink() {
    int fd = memoryFile(MIB);
    assertEquals(0, Memory.getSeals(fd));
    Memory.addSeals(fd, Memory.F_SEAL_SHRINK | Memory.F_SEAL_SEAL);
    assertEquals(Memory.F_SEAL_SHRINK | Memory.F_SEAL_SEAL, Memory.getSeals(fd));
    Memory.ftruncate(fd, 2 * MIB);
    LibcException failure = LibcConditions.failsWithoutLeak(() -> Memory.ftruncate(fd, MIB));
    assertEquals("EPERM", failure.errnoName());
    assertEquals(
        Errno.EPERM,
        assertThrows(LibcException.class, () -> Memory.addSeals(fd, Memory.F_SEAL_GROW)).errno());
    Descriptors.close(fd);
  }

  @Test
  void fallocateTakesMemoryAndAHoleGivesItBack() {
    int fd = memoryFile(8 * MIB);
    assertEquals(0, Descriptors.fstat(fd).allocatedBytes());
    Memory.fallocate(fd, 0, 2 * MIB, 4 * MIB);
    assertEquals(4 * MIB, Descriptors.fstat(fd).allocatedBytes());
    MemorySegment memory = map(fd, 8 * MIB);
    memory.set(JAVA_BYTE, 2 * MIB, (byte) 7);
    Memory.fallocate(
        fd, Memory.FALLOC_FL_PUNCH_HOLE | Memory.FALLOC_FL_KEEP_SIZE, 2 * MIB, 4 * MIB);
    assertEquals(0, Descriptors.fstat(fd).allocatedBytes());
    assertEquals(8 * MIB, Descriptors.fstat(fd).size());
    assertEquals(0, memory.get(JAVA_BYTE, 2 * MIB));
    Memory.munmap(memory);
    Descriptors.close(fd);
  }

  @Test
  void advicesReturnTheirError() {
    int fd = memoryFile(8 * MIB);
    MemorySegment memory = map(fd, 8 * MIB);
    Set<Integer> known = Set.of(0, Errno.EINVAL);
    int populated = Memory.madvise(memory.asSlice(0, MIB), Memory.MADV_POPULATE_WRITE);
    assertTrue(known.contains(populated), Errno.name(populated));
    if (populated == 0) {
      assertTrue(Descriptors.fstat(fd).allocatedBytes() >= MIB);
    }
    assertEquals(0, Memory.madvise(memory, Memory.MADV_DONTNEED));
    assertNotEquals(0, Memory.madvise(memory.asSlice(1, 4096), Memory.MADV_DONTNEED));
    // Whether huge pages can be had is the machine's affair; the error must be a sensible one.
    int collapsed = Memory.madvise(memory, Memory.MADV_COLLAPSE);
    assertFalse(collapsed == Errno.EBADF || collapsed < 0, Errno.name(collapsed));
    Memory.munmap(memory);
    Descriptors.close(fd);
  }

  @Test
  void aFixedMappingReplacesAPartOfAnother() {
    long page = Memory.pageSize();
    assertEquals(1, Long.bitCount(page));
    MemorySegment reserved =
        Memory.mmap(4 * page, Memory.PROT_NONE, Memory.MAP_PRIVATE | Memory.MAP_ANONYMOUS, -1, 0);
    int fd = memoryFile(page);
    MemorySegment part =
        Memory.mmap(
            reserved.address() + page,
            page,
            READ_WRITE,
            Memory.MAP_SHARED | Memory.MAP_FIXED,
            fd,
            0);
    assertEquals(reserved.address() + page, part.address());
    part.set(JAVA_LONG, 0, 5);
    assertEquals(5, reserved.get(JAVA_LONG, page));
    Memory.munmap(reserved);
    Descriptors.close(fd);
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
            () -> Memory.mmap(4096, READ_WRITE, Memory.MAP_SHARED, NO_FD, 0));
    assertEquals("mmap", failure.function());
    assertEquals(Errno.EBADF, failure.errno());
    assertEquals("EBADF", failure.errnoName());
    assertTrue(failure.attempt().contains("4096 bytes of fd " + NO_FD), failure.attempt());
    String message = failure.getMessage();
    assertTrue(message.startsWith("mmap failed with EBADF (9, "), message);
    assertTrue(message.endsWith(failure.attempt()), message);
    assertThrows(
        IllegalArgumentException.class,
        () -> Memory.mmap(-1, READ_WRITE, Memory.MAP_PRIVATE | Memory.MAP_ANONYMOUS, -1, 0));
  }

  @Test
  void failingCallsLeaveNoDescriptor() throws Exception {
    String tooLong = "x".repeat(300);
    assertEquals(
        Errno.EINVAL,
        LibcConditions.failsWithoutLeak(() -> Memory.memfdCreate(tooLong, 0)).errno());
    assertEquals(
        Errno.ENOENT,
        LibcConditions.failsWithoutLeak(
                () ->
                    Descriptors.open(directory.resolve("none").toString(), Descriptors.O_RDONLY, 0))
            .errno());
    for (int errno :
        new int[] {
          LibcConditions.failsWithoutLeak(() -> Descriptors.dup(NO_FD)).errno(),
          LibcConditions.failsWithoutLeak(() -> Descriptors.close(NO_FD)).errno(),
          LibcConditions.failsWithoutLeak(() -> Descriptors.fstat(NO_FD)).errno(),
          LibcConditions.failsWithoutLeak(() -> Memory.getSeals(NO_FD)).errno(),
          LibcConditions.failsWithoutLeak(() -> Descriptors.eventfdWrite(NO_FD, 1)).errno(),
          LibcConditions.failsWithoutLeak(() -> Descriptors.eventfdRead(NO_FD)).errno(),
          LibcConditions.failsWithoutLeak(() -> Memory.fallocate(NO_FD, 0, 0, 1)).errno()
        }) {
      assertEquals(Errno.EBADF, errno);
    }
    assertEquals(
        Errno.EINVAL, LibcConditions.failsWithoutLeak(() -> Descriptors.eventfd(0, 0x2)).errno());
  }

  @Test
  void filesAreReadWrittenAndIdentified() throws Exception {
    Path file = directory.resolve("file");
    int fd =
        Descriptors.open(
            file.toString(),
            Descriptors.O_RDWR | Descriptors.O_CREAT | Descriptors.O_EXCL | Descriptors.O_CLOEXEC,
            0600);
    try (Arena arena = Arena.ofConfined()) {
      assertEquals(5, Descriptors.write(fd, arena.allocateFrom("hell")));
      assertEquals("hell\0", Files.readString(file));
      int again =
          Descriptors.open("/proc/self/fd/" + fd, Descriptors.O_RDONLY | Descriptors.O_CLOEXEC, 0);
      MemorySegment buffer = arena.allocate(16);
      assertEquals(5, Descriptors.read(again, buffer));
      assertEquals("hell", buffer.getString(0));
      assertEquals(0, Descriptors.read(again, buffer));
      int copy = Descriptors.dup(fd);
      assertNotEquals(fd, copy);
      FileStatus status = Descriptors.fstat(fd);
      assertEquals(5, status.size());
      assertEquals(Files.getAttribute(file, "unix:ino"), status.inode());
      assertEquals(status, Descriptors.fstat(copy));
      assertEquals(status, Descriptors.fstat(again));
      Descriptors.close(copy);
      Descriptors.close(again);
    }
    Descriptors.close(fd);
  }

  @Test
  void anEventCounterCarriesValues() {
    int counter = Descriptors.eventfd(3, Descriptors.EFD_CLOEXEC | Descriptors.EFD_NONBLOCK);
    Descriptors.eventfdWrite(counter, 4);
    assertEquals(7, Descriptors.eventfdRead(counter));
    assertEquals(
        Errno.EAGAIN,
        assertThrows(LibcException.class, () -> Descriptors.eventfdRead(counter)).errno());
    Descriptors.close(counter);
  }

  @Test
  void heapMemoryIsRefused() {
    MemorySegment heap = MemorySegment.ofArray(new byte[8]);
    assertThrows(IllegalArgumentException.class, () -> Descriptors.read(0, heap));
    assertThrows(IllegalArgumentException.class, () -> RobustMutex.init(heap));
  }
}
