package io.nccl4j.internal.diagnose;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.nccl4j.bindings.Libc;
import io.nccl4j.diagnose.SharedMemorySegment;
import io.nccl4j.diagnose.SharedMemorySegment.Use;
import io.nccl4j.internal.machine.MachineFiles;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.FileTime;
import java.time.Duration;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Files that runs left behind: removed only if nobody can be using them. */
class SharedMemorySegmentsTest {
  private static final String PROCESS = "4711";

  @TempDir Path root;

  private Path shm;

  @BeforeEach
  void folder() throws IOException {
    assumeTrue(System.getProperty("os.name").equals("Linux"), "not Linux: no /proc, no leases");
    shm = Files.createDirectories(root.resolve("dev/shm"));
  }

  /** Only the link goes, before anybody follows it. */
  @AfterEach
  void unlink() throws IOException {
    Path proc = root.resolve("proc");
    if (Files.isSymbolicLink(proc)) {
      Files.delete(proc);
    }
  }

  /** The real processes, and a /dev/shm of our own. */
  private SharedMemorySegments withRealProcesses() throws IOException {
    Path proc = root.resolve("proc");
    if (!Files.exists(proc)) {
      Files.createSymbolicLink(proc, Path.of("/proc"));
    }
    return new SharedMemorySegments(new MachineFiles(root, Map.of()));
  }

  private Path create(String name) throws IOException {
    return Files.write(shm.resolve(name), new byte[8192]);
  }

  private static SharedMemorySegment only(List<SharedMemorySegment> segments) {
    assertEquals(1, segments.size(), segments::toString);
    return segments.getFirst();
  }

  @Test
  void unusedFileIsRemovedAndSaidToBe() throws IOException {
    Path file = create("nccl-a1B2c3");
    Files.setLastModifiedTime(file, FileTime.from(Instant.now().minus(Duration.ofHours(3))));
    SharedMemorySegment listed = only(withRealProcesses().list());
    assertEquals(Use.UNUSED, listed.use(), listed::toString);
    assertEquals(8192, listed.bytes());
    assertEquals(Files.getOwner(file).getName(), listed.owner());
    assertEquals(3, listed.age().toHours());
    assertTrue(Files.exists(file), "listing removes nothing");
    assertEquals(file.toString(), only(withRealProcesses().removeUnused()).path());
    assertFalse(Files.exists(file));
    assertEquals(List.of(), withRealProcesses().list());
  }

  @Test
  void whatIsNotNcclsIsNotTouched() throws IOException {
    create("sem.mine");
    create("ncclstats");
    Files.createDirectory(shm.resolve("nccl-folder"));
    Files.createSymbolicLink(shm.resolve("nccl-link"), create("target"));
    assertEquals(List.of(), withRealProcesses().removeUnused());
    assertEquals(5, shm.toFile().list().length);
  }

  @Test
  void openFileIsLeft() throws IOException {
    Path file = create("nccl-open");
    try (FileChannel open = FileChannel.open(file, StandardOpenOption.READ)) {
      assertTrue(open.isOpen());
      assertEquals(List.of(), withRealProcesses().removeUnused());
      SharedMemorySegment segment = only(withRealProcesses().list());
      assertEquals(Use.USED, segment.use());
      assertTrue(
          segment.reason().contains("(" + ProcessHandle.current().pid() + ")"), segment::reason);
    }
    assertEquals(Use.UNUSED, only(withRealProcesses().list()).use());
  }

  @Test
  void mappedFileIsLeftThoughItIsClosed() throws IOException {
    Path file = create("nccl-mapped");
    try (Arena arena = Arena.ofShared()) {
      try (FileChannel open = FileChannel.open(file, StandardOpenOption.READ)) {
        MemorySegment mapping = open.map(FileChannel.MapMode.READ_ONLY, 0, 8192, arena);
        assertEquals(8192, mapping.byteSize());
      }
      assertEquals(List.of(), withRealProcesses().removeUnused());
      assertEquals(Use.USED, only(withRealProcesses().list()).use());
    }
    assertEquals(1, withRealProcesses().removeUnused().size());
  }

  // ---- a /proc of our own

  private SharedMemorySegments withProcess(String maps, String pidNamespace) throws IOException {
    Path process = Files.createDirectories(root.resolve("proc/" + PROCESS));
    Files.createDirectories(process.resolve("fd"));
    Files.writeString(process.resolve("maps"), maps);
    Files.writeString(process.resolve("comm"), "python3\n");
    Path self = Files.createDirectories(root.resolve("proc/self/ns"));
    Files.deleteIfExists(self.resolve("pid"));
    Files.createSymbolicLink(self.resolve("pid"), Path.of(pidNamespace));
    return new SharedMemorySegments(new MachineFiles(root, Map.of()));
  }

  /** The name differs, as in another container: device and number count. */
  @Test
  void mappingOfAnotherProcessIsSeenWhateverItsName() throws IOException {
    Path file = create("nccl-other");
    Map<String, Object> id = Files.readAttributes(file, "unix:dev,ino");
    long device = (Long) id.get("dev");
    long major = device >> 8 & 0xfff | device >> 32 & ~0xfffL;
    long minor = device & 0xff | device >> 12 & ~0xffL;
    String line =
        String.format(
            "7f0000000000-7f0000002000 rw-s 00000000 %02x:%02x %d    /elsewhere/x (deleted)%n",
            major, minor, (Long) id.get("ino"));
    SharedMemorySegment segment = only(withProcess("\n" + line, "pid:[4026531836]").list());
    assertEquals(Use.USED, segment.use());
    assertEquals("used by python3 (" + PROCESS + ")", segment.reason());
  }

  /** Only the lease, which the kernel gives in this case, proves it. */
  @Test
  void leaseProvesWhatProcessesDoNot() throws IOException {
    assumeTrue(Libc.isAvailable(), "no native access: " + Libc.unavailableReason());
    create("nccl-lease");
    SharedMemorySegments segments = withProcess("", "pid:[4026532000]");
    Files.delete(root.resolve("proc/" + PROCESS + "/maps"));
    Files.createDirectory(root.resolve("proc/" + PROCESS + "/maps"));
    assertEquals(Use.UNUSED, only(segments.list()).use());
  }

  /** Somebody has it open whom /proc does not show: as from another container. */
  @Test
  void leaseFindsWhoCannotBeSeen() throws IOException {
    assumeTrue(Libc.isAvailable(), "no native access: " + Libc.unavailableReason());
    Path file = create("nccl-hidden");
    SharedMemorySegments segments = withProcess("", "pid:[4026531836]");
    try (FileChannel open = FileChannel.open(file, StandardOpenOption.WRITE)) {
      assertTrue(open.isOpen());
      SharedMemorySegment segment = only(segments.list());
      assertEquals(Use.USED, segment.use());
      assertEquals("used by a process that cannot be seen from here", segment.reason());
      assertEquals(List.of(), segments.removeUnused());
    }
  }

  @Test
  void withoutALeaseAllProcessesHaveToBeSeen() throws IOException {
    create("nccl-x");
    SharedMemorySegments segments = withProcess("", "pid:[4026531836]");
    assertEquals(Use.UNUSED, only(segments.withoutLeases("no leases").list()).use());
    SharedMemorySegment hidden =
        only(withProcess("", "pid:[4026532000]").withoutLeases("no leases").list());
    assertEquals(Use.UNKNOWN, hidden.use());
    assertEquals("processes outside this container cannot be seen; no leases", hidden.reason());
    Files.delete(root.resolve("proc/" + PROCESS + "/maps"));
    Files.createDirectory(root.resolve("proc/" + PROCESS + "/maps"));
    SharedMemorySegment unreadable = only(segments.withoutLeases("no leases").list());
    assertEquals(Use.UNKNOWN, unreadable.use());
    assertTrue(unreadable.reason().startsWith("1 process cannot be examined"), unreadable::reason);
    assertEquals(List.of(), segments.withoutLeases("no leases").removeUnused());
    assertTrue(Files.exists(shm.resolve("nccl-x")));
  }
}
