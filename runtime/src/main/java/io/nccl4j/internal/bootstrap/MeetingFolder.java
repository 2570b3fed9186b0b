package io.nccl4j.internal.bootstrap;

import io.nccl4j.DeadlineException;
import io.nccl4j.InterruptedWaitException;
import io.nccl4j.SystemErrorException;
import io.nccl4j.UniqueId;
import io.nccl4j.internal.machine.ProcessFiles;
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
import java.nio.file.attribute.UserPrincipal;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Objects;
import java.util.Optional;
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
public final class MeetingFolder {
  /** The variable with the user's own name of the job. */
  public static final String JOB = "NCCL4J_JOB";

  /** The variable that names the folder. */
  public static final String VARIABLE = "NCCL4J_RENDEZVOUS_DIR";

  private static final Logger LOG = LogManager.getLogger(MeetingFolder.class);
  private static final Set<PosixFilePermission> OWNER_ONLY =
      PosixFilePermissions.fromString("rwx------");
  private static final long POLL_NANOS = 5_000_000;
  private static final int NAME_BYTES = 12;

  // job and mark of the maker
  private static final Pattern FORM =
      Pattern.compile("[0-9a-f]{24}\\.([-0-9a-f]{36}(?:\\.\\d+){3})");

  private final Path folder;

  private MeetingFolder(Path folder) {
    this.folder = folder;
  }

  /**
   * The folders of this process's user, in the order in which they are tried. The first one's name
   * can be taken by anybody; nobody else can make anything in the home folder.
   */
  public static List<Path> standard() {
    String user = ProcessFiles.HERE.ownerNumber().orElse(System.getProperty("user.name"));
    return List.of(
        Path.of("/tmp", "nccl4j-" + user), Path.of(System.getProperty("user.home"), ".nccl4j"));
  }

  /**
   * Opens the first of these folders that can be used. All processes of a user on a machine come to
   * the same one.
   *
   * @throws SystemErrorException if none can be used
   */
  public static MeetingFolder openFirst(List<Path> folders) {
    SystemErrorException first = null;
    for (Path folder : folders) {
      try {
        MeetingFolder opened = open(folder);
        if (first != null) {
          LOG.warn("{}: unique ids are left in {} instead", first.getMessage(), folder);
        }
        return opened;
      } catch (SystemErrorException e) {
        if (first == null) {
          first = e;
        } else {
          first.addSuppressed(e);
        }
      }
    }
    throw (SystemErrorException)
        new SystemErrorException(
                "none of the folders for unique ids can be used: " + folders,
                "set " + VARIABLE + " to a folder of yours; the cause says what is wrong")
            .causedBy(Objects.requireNonNull(first));
  }

  /**
   * Opens a folder, which is made if it is not there.
   *
   * @throws SystemErrorException if it cannot be made, is no folder, or others may enter it
   */
  public static MeetingFolder open(Path path) {
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
      Optional<UserPrincipal> user = ProcessFiles.HERE.owner();
      if (user.isPresent() && !attributes.owner().equals(user.get())) {
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
          refused(path, "cannot be used: " + e, "name another in " + VARIABLE).causedBy(e);
    }
  }

  private static SystemErrorException refused(Path path, String problem, String remedy) {
    return new SystemErrorException("the folder for unique ids " + path + " " + problem, remedy);
  }

  /**
   * Leaves an id; what was left for the same job before goes, and what processes left that are
   * gone. Returns the file.
   */
  public Path leave(String job, UniqueId id) {
    of(job).forEach(MeetingFolder::remove);
    stale().forEach(MeetingFolder::remove);
    Path file = folder.resolve(name(job) + "." + Place.HERE.mark());
    id.writeTo(file);
    return file;
  }

  /**
   * Takes the id that another process leaves.
   *
   * @throws DeadlineException if there is none in time
   * @throws InterruptedWaitException if the thread was interrupted; it stays so
   * @throws SystemErrorException if others could have read or written it
   */
  public UniqueId take(String job, Duration timeout) {
    Deadline deadline = Deadline.after(timeout);
    while (true) {
      for (Path file : of(job)) {
        if (alive(file)) {
          try {
            return UniqueId.readFrom(file, Duration.ZERO);
          } catch (DeadlineException e) {
            LOG.debug("{} is gone, as is its creator", file, e);
          }
        }
      }
      if (deadline.passed()) {
        throw new DeadlineException(
            "no unique id appeared in " + folder + " within " + deadline,
            "check that the process with rank 0 has started, on this machine if "
                + VARIABLE
                + " does not name a shared folder, and that "
                + JOB
                + ", if set, is the same in all processes");
      }
      if (Thread.currentThread().isInterrupted()) {
        throw new InterruptedWaitException(
            "interrupted while waiting for a unique id in " + folder, "");
      }
      LockSupport.parkNanos(POLL_NANOS);
    }
  }

  /** The file of a name, which is a secret and cannot be read off it. */
  Path file(String of, String suffix) {
    return folder.resolve(name(of) + suffix);
  }

  /** The files whose names end so. */
  List<Path> withSuffix(String suffix) {
    return matching("*" + suffix);
  }

  /** The files of processes that are gone. */
  public List<Path> stale() {
    return matching("*").stream().filter(file -> isId(file) && !alive(file)).toList();
  }

  /** The files of ids, whoever made them. */
  public List<Path> ids() {
    return matching("*").stream().filter(MeetingFolder::isId).toList();
  }

  private List<Path> of(String job) {
    return matching(name(job) + ".*");
  }

  private List<Path> matching(String pattern) {
    List<Path> files = new ArrayList<>();
    try (DirectoryStream<Path> all = Files.newDirectoryStream(folder, pattern)) {
      all.forEach(files::add);
    } catch (IOException e) {
      throw (SystemErrorException)
          refused(folder, "cannot be listed: " + e, "check its permissions").causedBy(e);
    }
    return files;
  }

  private static boolean isId(Path file) {
    return FORM.matcher(file.getFileName().toString()).matches();
  }

  /** Whether a file's maker may still serve it: of another machine's nobody can tell. */
  private static boolean alive(Path file) {
    Matcher form = FORM.matcher(file.getFileName().toString());
    return form.matches() && !Place.isGone(form.group(1));
  }

  /** Removes a file that was left; it may be gone already. */
  public static void remove(Path file) {
    try {
      Files.deleteIfExists(file);
    } catch (IOException e) {
      throw new SystemErrorException(
              "cannot remove " + file + ": " + e, "it holds a secret: remove it")
          .causedBy(e);
    }
  }

  /** Its path. */
  @Override
  public String toString() {
    return folder.toString();
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
