package io.nccl4j.internal.bootstrap.launch;

import io.nccl4j.SystemErrorException;
import io.nccl4j.diagnose.Diagnosis.Check;
import io.nccl4j.internal.bootstrap.MeetingFolder;
import io.nccl4j.internal.bootstrap.Place;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;

/**
 * The files of unique ids that lie about: in the folders where {@link JobLaunch} leaves them, and
 * the one that a variable names. Each holds a secret. A job that was killed does not remove its
 * own; they are known by the mark of the process that made them.
 */
public final class LeftIds {
  private static final Logger LOG = LogManager.getLogger(LeftIds.class);
  private static final String NAME = "unique ids";

  /** Begins the line of a file that names its maker. */
  private static final String MAKER = "maker ";

  private static final int MAX_NAMED = 8;

  private final List<Path> folders;
  private final List<Path> files;

  private LeftIds(List<Path> folders, List<Path> files) {
    this.folders = folders;
    this.files = files;
  }

  /** Where this process's user and environment have them. */
  public static LeftIds here() {
    return of(MeetingFolder.standard(), System.getenv());
  }

  static LeftIds of(List<Path> standard, Map<String, String> environment) {
    List<Path> folders = new ArrayList<>(standard);
    Stream.ofNullable(environment.get(MeetingFolder.VARIABLE)).map(Path::of).forEach(folders::add);
    return new LeftIds(
        folders, Stream.ofNullable(environment.get(JobLaunch.ID_FILE)).map(Path::of).toList());
  }

  /** See {@link Place#mark}, of this process. */
  public static String processMark() {
    return Place.HERE.mark();
  }

  /** See {@link Place#isGone}. */
  public static boolean isGone(String mark) {
    return Place.isGone(mark);
  }

  /** Whether there are any of processes that are gone; removes nothing. */
  public Check check() {
    try {
      List<Path> stale = stale();
      if (!stale.isEmpty()) {
        String named =
            stale.stream().limit(MAX_NAMED).map(Path::toString).collect(Collectors.joining(", "));
        int more = stale.size() - MAX_NAMED;
        return Check.warn(
            NAME,
            stale.size()
                + (stale.size() == 1 ? " file of a process" : " files of processes")
                + " that are gone, with their secrets: "
                + named
                + (more > 0 ? " and " + more + " more" : ""),
            "nccl4j doctor --remove-stale-ids");
      }
      int others = 0;
      for (MeetingFolder folder : open()) {
        others += folder.ids().size();
      }
      return Check.ok(
          NAME,
          others == 0
              ? "none left behind"
              : others + " in use, or of another machine or container");
    } catch (SystemErrorException e) {
      return Check.warn(NAME, e.problem(), e.remedy());
    }
  }

  /**
   * Removes those of processes that are gone, and returns them.
   *
   * @throws SystemErrorException if one cannot be removed
   */
  public List<Path> remove() {
    List<Path> stale = stale();
    stale.forEach(MeetingFolder::remove);
    return stale;
  }

  private List<Path> stale() {
    List<Path> stale = new ArrayList<>();
    open().forEach(folder -> stale.addAll(folder.stale()));
    files.stream().filter(LeftIds::isStale).forEach(stale::add);
    return stale;
  }

  /** The folders that are there and this user's. */
  private List<MeetingFolder> open() {
    List<MeetingFolder> opened = new ArrayList<>();
    for (Path folder : folders) {
      if (Files.isDirectory(folder, LinkOption.NOFOLLOW_LINKS)) {
        opened.add(MeetingFolder.open(folder));
      }
    }
    return opened;
  }

  private static boolean isStale(Path file) {
    try {
      return Files.isRegularFile(file, LinkOption.NOFOLLOW_LINKS)
          && Files.readString(file)
              .lines()
              .anyMatch(line -> line.startsWith(MAKER) && isGone(line.substring(MAKER.length())));
    } catch (IOException e) {
      LOG.debug("{} cannot be read", file, e);
      return false;
    }
  }
}
