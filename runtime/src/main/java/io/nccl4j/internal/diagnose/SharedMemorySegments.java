package io.nccl4j.internal.diagnose;

import io.nccl4j.bindings.Descriptors;
import io.nccl4j.bindings.Errno;
import io.nccl4j.bindings.Libc;
import io.nccl4j.bindings.LibcException;
import io.nccl4j.diagnose.SharedMemorySegment;
import io.nccl4j.diagnose.SharedMemorySegment.Use;
import io.nccl4j.internal.diagnose.FileUsers.Identity;
import io.nccl4j.internal.machine.MachineFiles;
import java.io.IOException;
import java.nio.file.DirectoryIteratorException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * The files of NCCL in {@code /dev/shm}, and which of them nobody uses. Their names say nothing of
 * who made them, so there are two proofs, and one is enough:
 *
 * <ul>
 *   <li>The kernel grants a write lease, which it does only if nobody has the file open or maps it,
 *       in whatever container. While the lease lasts nobody can open the file, so it is also the
 *       safe moment to remove it.
 *   <li>No process maps the file or has it open, by {@code /proc}, all of which could be read, and
 *       which shows all processes of the machine.
 * </ul>
 */
final class SharedMemorySegments {
  private static final String PATTERN = "nccl-*";

  /** The number of the first PID namespace's file, fixed in the kernel. */
  private static final long ALL_PROCESSES = 4026531836L;

  private final MachineFiles machine;

  /** Why no leases are asked for; empty if they are. */
  private final String noLeases;

  SharedMemorySegments(MachineFiles machine) {
    this(machine, Libc.isAvailable() ? "" : "no leases: " + Libc.unavailableReason());
  }

  private SharedMemorySegments(MachineFiles machine, String noLeases) {
    this.machine = machine;
    this.noLeases = noLeases;
  }

  /** The same by the second proof alone. */
  SharedMemorySegments withoutLeases(String reason) {
    return new SharedMemorySegments(machine, reason);
  }

  /** All of them; removes nothing. */
  List<SharedMemorySegment> list() {
    return examine(false);
  }

  /** Removes those that are proven to be unused, and returns them. */
  List<SharedMemorySegment> removeUnused() {
    return examine(true).stream().filter(segment -> segment.use() == Use.UNUSED).toList();
  }

  private List<SharedMemorySegment> examine(boolean remove) {
    try {
      Map<Path, Identity> files = files();
      if (files.isEmpty()) {
        return List.of();
      }
      FileUsers users = new FileUsers(machine, List.copyOf(files.values()));
      List<SharedMemorySegment> found = new ArrayList<>();
      for (Map.Entry<Path, Identity> file : files.entrySet()) {
        try {
          found.add(examine(file.getKey(), file.getValue(), users, remove));
        } catch (NoSuchFileException e) {
          // Its owner has removed it in the meantime.
          continue;
        }
      }
      return found;
    } catch (NoSuchFileException e) {
      return List.of();
    } catch (IOException e) {
      throw (io.nccl4j.SystemErrorException)
          new io.nccl4j.SystemErrorException(
                  "cannot look through " + SharedMemory.PATH + " and /proc: " + e,
                  "run it as the user of the ranks, or as root")
              .causedBy(e);
    }
  }

  private Map<Path, Identity> files() throws IOException {
    Map<Path, Identity> files = new LinkedHashMap<>();
    try (DirectoryStream<Path> entries =
        Files.newDirectoryStream(machine.path(SharedMemory.PATH), PATTERN)) {
      for (Path entry : entries) {
        if (Files.isRegularFile(entry, LinkOption.NOFOLLOW_LINKS)) {
          files.put(entry, Identity.of(entry));
        }
      }
    } catch (DirectoryIteratorException e) {
      throw e.getCause();
    }
    return files;
  }

  private SharedMemorySegment examine(Path file, Identity identity, FileUsers users, boolean remove)
      throws IOException {
    String by = users.of(identity);
    if (!by.isEmpty()) {
      return segment(file, Use.USED, "used by " + by);
    }
    if (!noLeases.isEmpty()) {
      return byProcesses(file, users, noLeases, remove);
    }
    int fd;
    try {
      fd = Descriptors.open(file.toString(), Descriptors.O_RDONLY | Descriptors.O_CLOEXEC, 0);
    } catch (LibcException e) {
      if (e.errno() == Errno.ENOENT) {
        throw new NoSuchFileException(file.toString());
      }
      return byProcesses(file, users, e.errnoName() + " on opening it", remove);
    }
    try {
      int error = Descriptors.tryLease(fd);
      if (error == Errno.EAGAIN) {
        return segment(file, Use.USED, "used by a process that cannot be seen from here");
      }
      if (error != 0) {
        return byProcesses(file, users, Errno.name(error) + " on asking for a lease", remove);
      }
      // The name may belong to another file by now.
      if (!Identity.of(file).equals(identity)) {
        throw new NoSuchFileException(file.toString());
      }
      return unused(file, remove);
    } finally {
      Descriptors.close(fd);
    }
  }

  /** The second proof, where the kernel does not give the first. */
  private SharedMemorySegment byProcesses(
      Path file, FileUsers users, String noLease, boolean remove) throws IOException {
    if (!users.isComplete()) {
      int count = users.unreadable();
      return segment(
          file,
          Use.UNKNOWN,
          count + (count == 1 ? " process" : " processes") + " cannot be examined; " + noLease);
    }
    if (machine.processes().namespace("pid").orElse(0) != ALL_PROCESSES) {
      return segment(
          file, Use.UNKNOWN, "processes outside this container cannot be seen; " + noLease);
    }
    return unused(file, remove);
  }

  private static SharedMemorySegment unused(Path file, boolean remove) throws IOException {
    SharedMemorySegment segment = segment(file, Use.UNUSED, "");
    if (remove) {
      Files.delete(file);
    }
    return segment;
  }

  private static SharedMemorySegment segment(Path file, Use use, String reason) throws IOException {
    Instant written = Files.getLastModifiedTime(file, LinkOption.NOFOLLOW_LINKS).toInstant();
    Duration age = Duration.between(written, Instant.now());
    return new SharedMemorySegment(
        file.toString(),
        Files.size(file),
        Files.getOwner(file, LinkOption.NOFOLLOW_LINKS).getName(),
        age.isNegative() ? Duration.ZERO : age,
        use,
        reason);
  }
}
