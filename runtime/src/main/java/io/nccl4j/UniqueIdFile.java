package io.nccl4j;

import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.BasicFileAttributes;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.attribute.PosixFilePermissions;
import java.nio.file.attribute.UserPrincipal;
import java.time.Duration;
import java.util.Set;
import java.util.concurrent.locks.LockSupport;

/**
 * A unique id in a file of its user: written in one step, refused if others could have read it. An
 * optional second line names the process that serves the id, so that others can tell when it is
 * gone.
 */
final class UniqueIdFile {
  private static final Set<PosixFilePermission> OWNER_ONLY =
      PosixFilePermissions.fromString("rw-------");
  private static final String MAKER = "maker ";
  private static final long POLL_NANOS = 5_000_000;

  /** More than an id and blanks; the rest of any other file is not read. */
  private static final int MAX_BYTES = 4096;

  private UniqueIdFile() {}

  static void write(UniqueId id, Path file) {
    Path directory = file.toAbsolutePath().resolveSibling(".").normalize();
    try {
      Path part = Files.createTempFile(directory, ".nccl4j-id", null, attributes(directory));
      try {
        Files.writeString(
            part, id + "\n" + (id.maker().isEmpty() ? "" : MAKER + id.maker() + "\n"));
        Files.move(part, file, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
      } finally {
        Files.deleteIfExists(part);
      }
    } catch (IOException e) {
      throw new SystemErrorException(
              "cannot write the unique id to " + file + ": " + e, "name a writable folder")
          .causedBy(e);
    }
  }

  static UniqueId read(Path file, Duration timeout) {
    if (timeout.isNegative()) {
      throw new InvalidArgumentException(
          "the timeout is " + timeout, "pass a duration of 0 or more");
    }
    long start = System.nanoTime();
    while (true) {
      try {
        refuseUnlessRegular(file);
        if (isPosix(file)) {
          refuseIfShared(file);
          refuseIfForeign(file);
        }
        return parse(file, content(file));
      } catch (NoSuchFileException e) {
        if (Duration.ofNanos(System.nanoTime() - start).compareTo(timeout) > 0) {
          throw new DeadlineException(
                  "the unique id file "
                      + file
                      + " did not appear within "
                      + timeout.toMillis()
                      + " ms"
                      + (e.getReason() == null ? "" : ": " + e.getReason()),
                  "check that the rank that writes it has started and uses the same path")
              .causedBy(e);
        }
        pause(file);
      } catch (IOException e) {
        throw new SystemErrorException(
                "cannot read the unique id from " + file + ": " + e, "check its permissions")
            .causedBy(e);
      }
    }
  }

  /**
   * Parses the id; a file that nobody serves any more counts as missing, since its rank will
   * replace it.
   */
  private static UniqueId parse(Path file, String text) throws NoSuchFileException {
    UniqueId id = UniqueId.parse(text);
    String maker =
        text.lines()
            .filter(line -> line.startsWith(MAKER))
            .map(line -> line.substring(MAKER.length()).strip())
            .findFirst()
            .orElse("");
    if (!maker.isEmpty() && Provider.get().isGone(maker)) {
      throw new NoSuchFileException(
          file.toString(),
          null,
          "the present one belongs to an earlier job, whose process is gone (" + maker + ")");
    }
    return id.from(file, maker);
  }

  private static void pause(Path file) {
    if (Thread.currentThread().isInterrupted()) {
      throw new InterruptedWaitException(
          "interrupted while waiting for the unique id file " + file, "");
    }
    LockSupport.parkNanos(POLL_NANOS);
  }

  /** Opening a pipe would wait for its writer without limit. */
  private static void refuseUnlessRegular(Path file) throws IOException {
    if (!Files.readAttributes(file, BasicFileAttributes.class).isRegularFile()) {
      throw new SystemErrorException(
          "the unique id file " + file + " is not a regular file",
          "name the file that UniqueId.writeTo wrote");
    }
  }

  private static String content(Path file) throws IOException {
    try (InputStream in = Files.newInputStream(file)) {
      return new String(in.readNBytes(MAX_BYTES), StandardCharsets.UTF_8);
    }
  }

  private static void refuseIfShared(Path file) throws IOException {
    Set<PosixFilePermission> permissions = Files.getPosixFilePermissions(file);
    if (!OWNER_ONLY.containsAll(permissions)) {
      throw new SystemErrorException(
          "the unique id file "
              + file
              + " can be read or written by others ("
              + PosixFilePermissions.toString(permissions)
              + ")",
          "it holds a secret: write it with UniqueId.writeTo, or chmod 600 it");
    }
  }

  /** Where the system does not tell who runs this process, there is nothing to compare with. */
  private static void refuseIfForeign(Path file) throws IOException {
    UserPrincipal owner = Files.getOwner(file);
    UserPrincipal user = Provider.get().user().orElse(owner);
    if (!owner.equals(user)) {
      throw new SystemErrorException(
          "the unique id file " + file + " belongs to " + owner + ", this process to " + user,
          "let the same user run all ranks");
    }
  }

  private static FileAttribute<?>[] attributes(Path directory) {
    return isPosix(directory)
        ? new FileAttribute<?>[] {PosixFilePermissions.asFileAttribute(OWNER_ONLY)}
        : new FileAttribute<?>[0];
  }

  private static boolean isPosix(Path path) {
    return path.getFileSystem().supportedFileAttributeViews().contains("posix");
  }
}
