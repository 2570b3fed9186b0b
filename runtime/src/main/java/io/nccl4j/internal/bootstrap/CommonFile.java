package io.nccl4j.internal.bootstrap;

import io.nccl4j.SystemErrorException;
import io.nccl4j.internal.machine.Machine;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.time.Instant;
import java.util.Set;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;

/**
 * Memory that the processes of one user on one machine have in common, found by a name that only
 * they know. Its file is needed until all have opened it; the memory lasts as long as they use it.
 */
@SuppressWarnings("try") // a lock is held, not used
public final class CommonFile {
  private static final Logger LOG = LogManager.getLogger(CommonFile.class);
  private static final String SUFFIX = ".common";

  /** No process takes longer to join: the file of one that was killed meanwhile. */
  private static final Duration STALE = Duration.ofDays(1);

  private final Path file;
  private final MemorySegment memory;

  private CommonFile(Path file, MemorySegment memory) {
    this.file = file;
    this.memory = memory;
  }

  /**
   * Opens it, or makes it, full of zeros.
   *
   * @param name the same in all processes, and a secret of theirs
   * @throws SystemErrorException if there is no folder for it, or no room
   */
  public static CommonFile open(String name, int bytes) {
    MeetingFolder folder = MeetingFolder.openFirst(MeetingFolder.standard());
    // A folder may be shared by machines.
    Path file = folder.file(Machine.bootId() + name, SUFFIX);
    try (FileChannel channel =
        FileChannel.open(
            file,
            Set.of(
                StandardOpenOption.CREATE,
                StandardOpenOption.READ,
                StandardOpenOption.WRITE,
                LinkOption.NOFOLLOW_LINKS),
            PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------")))) {
      folder.withSuffix(SUFFIX).forEach(CommonFile::removeIfStale);
      fill(channel, bytes);
      MemorySegment memory = channel.map(FileChannel.MapMode.READ_WRITE, 0, bytes, Arena.ofAuto());
      return new CommonFile(file, memory);
    } catch (IOException | UnsupportedOperationException e) {
      // Also for an interrupted thread, whose join ends before long.
      remove(file);
      throw new SystemErrorException(
              "the common file " + file + " cannot be used: " + e, "check its folder")
          .causedBy(e);
    }
  }

  /** With room for all of it: where there is none, writing to a mapping would end the process. */
  private static void fill(FileChannel channel, long bytes) throws IOException {
    try (FileLock ignored = channel.lock()) {
      long missing = bytes - channel.size();
      if (missing > 0) {
        ByteBuffer zeros = ByteBuffer.allocate((int) missing);
        while (zeros.hasRemaining()) {
          channel.write(zeros, bytes - zeros.remaining());
        }
      }
    }
  }

  private static void removeIfStale(Path file) {
    try {
      if (Files.getLastModifiedTime(file).toInstant().isBefore(Instant.now().minus(STALE))) {
        Files.deleteIfExists(file);
      }
    } catch (IOException | UncheckedIOException e) {
      LOG.debug("{} is left where it is", file, e);
    }
  }

  /** The memory; it is unmapped when nobody refers to it any more. */
  public MemorySegment memory() {
    return memory;
  }

  /** All have opened it, or none is to: the file goes, the memory stays. */
  public void remove() {
    remove(file);
  }

  private static void remove(Path file) {
    try {
      Files.deleteIfExists(file);
    } catch (IOException e) {
      LOG.warn("{} cannot be removed: {}", file, e.toString());
    }
  }
}
