package io.nccl4j.bootstrap;

import io.nccl4j.DeadlineException;
import io.nccl4j.SystemErrorException;
import io.nccl4j.UniqueId;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFileAttributes;
import java.nio.file.attribute.PosixFilePermission;
import java.nio.file.attribute.PosixFilePermissions;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Set;
import java.util.concurrent.locks.LockSupport;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;

/**
 * A folder that only its user can enter, in which the process with rank 0 leaves the unique id for
 * the others of its job.
 *
 * <p>A file is named by the job and by the process that made it, so that what a dead process left
 * is known as such, and passed over.
 */
final class MeetingFolder {
  private static final Logger LOG = LogManager.getLogger(MeetingFolder.class);
  private static final Set<PosixFilePermission> OWNER_ONLY =
      PosixFilePermissions.fromString("rwx------");
  private static final long POLL_NANOS = 5_000_000;
  private static final int NAME_BYTES = 12;

  // job, boot, PID namespace, pid and start of the maker
  private static final Pattern FORM =
      Pattern.compile("(\\w+)\\.([-0-9a-f]{36})\\.(\\d+)\\.(\\d+)\\.(\\d+)");

  private final Path folder;

  private MeetingFolder(Path folder) {
    this.folder = folder;
  }

  /** The folder of this process's user. */
  static Path standard() {
    String user = System.getProperty("user.name");
    try {
      user = Files.getAttribute(Path.of("/proc/self"), "unix:uid").toString();
    } catch (IOException | UnsupportedOperationException | IllegalArgumentException notLinux) {
      LOG.debug("the user has no number here", notLinux);
    }
    return Path.of("/tmp", "nccl4j-" + user);
  }

  /**
   * Opens a folder, which is made if it is not there.
   *
   * @throws SystemErrorException if it cannot be made, is no folder, or others may enter it
   */
  static MeetingFolder open(Path path) {
    try {
      try {
        Files.createDirectory(path, PosixFilePermissions.asFileAttribute(OWNER_ONLY));
      } catch (FileAlreadyExistsException e) {
        LOG.debug("{} is there", path);
      }
      PosixFileAttributes attributes =
          Files.readAttributes(path, PosixFileAttributes.class, LinkOption.NOFOLLOW_LINKS);
      if (!attributes.isDirectory()) {
        throw refused(path, "is no folder", "remove it");
      }
      Path self = Path.of("/proc/self");
      if (Files.exists(self) && !attributes.owner().equals(Files.getOwner(self))) {
        throw refused(
            path,
            "belongs to " + attributes.owner(),
            "let one user run all ranks, or name another");
      }
      if (!OWNER_ONLY.containsAll(attributes.permissions())) {
        throw refused(
            path,
            "can be used by others ("
                + PosixFilePermissions.toString(attributes.permissions())
                + ")",
            "it holds secrets: chmod 700 it");
      }
      return new MeetingFolder(path);
    } catch (IOException | UnsupportedOperationException e) {
      throw (SystemErrorException)
          refused(path, "cannot be used: " + e, "name another in " + JobLaunch.FOLDER).causedBy(e);
    }
  }

  private static SystemErrorException refused(Path path, String problem, String remedy) {
    return new SystemErrorException("the folder for unique ids " + path + " " + problem, remedy);
  }

  /** Leaves an id; what was left for the same job before goes. Returns the file. */
  Path leave(String job, UniqueId id) {
    of(job).forEach(MeetingFolder::remove);
    Place here = Place.HERE;
    Path file =
        folder.resolve(
            String.join(
                ".",
                name(job),
                here.boot().toString(),
                Integer.toUnsignedString(here.pids()),
                Integer.toString(here.pid()),
                Long.toString(here.started())));
    id.writeTo(file);
    return file;
  }

  /**
   * Takes the id that another process leaves.
   *
   * @throws DeadlineException if there is none in time
   * @throws SystemErrorException if others could have read or written it
   */
  UniqueId take(String job, Duration timeout) {
    long start = System.nanoTime();
    while (true) {
      for (Path file : of(job)) {
        if (alive(file)) {
          try {
            return UniqueId.readFrom(file, Duration.ZERO);
          } catch (DeadlineException e) {
            LOG.debug("{} is gone, as is its maker", file, e);
          }
        }
      }
      if (System.nanoTime() - start > timeout.toNanos()) {
        throw new DeadlineException(
            "no unique id came to " + folder + " within " + timeout.toMillis() + " ms",
            "check that the process with rank 0 has started, on this machine if "
                + JobLaunch.FOLDER
                + " does not name a shared folder");
      }
      LockSupport.parkNanos(POLL_NANOS);
    }
  }

  private List<Path> of(String job) {
    List<Path> files = new ArrayList<>();
    try (DirectoryStream<Path> all = Files.newDirectoryStream(folder, name(job) + ".*")) {
      all.forEach(files::add);
    } catch (IOException e) {
      throw (SystemErrorException)
          refused(folder, "cannot be listed: " + e, "check its permissions").causedBy(e);
    }
    return files;
  }

  /** Whether a file's maker may still serve it: of another machine's nobody can tell. */
  private static boolean alive(Path file) {
    Matcher form = FORM.matcher(file.getFileName().toString());
    if (!form.matches()) {
      return false;
    }
    Place here = Place.HERE;
    if (!form.group(2).equals(here.boot().toString())
        || !here.samePids(Integer.parseUnsignedInt(form.group(3)))) {
      return true;
    }
    return Place.startOf(Integer.parseInt(form.group(4))) == Long.parseLong(form.group(5));
  }

  /** Removes a file that was left; it may be gone already. */
  static void remove(Path file) {
    try {
      Files.deleteIfExists(file);
    } catch (IOException e) {
      throw new SystemErrorException(
              "cannot remove " + file + ": " + e, "it holds a secret: remove it")
          .causedBy(e);
    }
  }

  private static String name(String job) {
    try {
      byte[] hash =
          MessageDigest.getInstance("SHA-256").digest(job.getBytes(StandardCharsets.UTF_8));
      return HexFormat.of().formatHex(hash, 0, NAME_BYTES);
    } catch (NoSuchAlgorithmException e) {
      throw new IllegalStateException("every Java has SHA-256", e);
    }
  }
}
