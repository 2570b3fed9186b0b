package io.nccl4j.internal.spi;

import io.nccl4j.SystemErrorException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;

/**
 * The control groups that this process's memory counts for: its own and all above. What a process
 * takes beyond a limit is no error but its end, by SIGKILL: so it is asked for before.
 *
 * <p>File pages that can be dropped count as room. What others take between a look and the taking
 * of the memory cannot be known. Thread-safe.
 */
public final class ControlGroups {
  private static final Logger LOG = LogManager.getLogger(ControlGroups.class);

  /** Version 1 writes "no limit" as the largest multiple of a page. */
  private static final long NO_LIMIT = 1L << 60;

  /** What is left for page tables, and for charges that the kernel counts in batches. */
  private static final long MARGIN = 8L << 20;

  /** How long a limit is believed: they change by hand, if ever. */
  private static final long FRESH_NANOS = TimeUnit.SECONDS.toNanos(1);

  private static final Pattern LINE = Pattern.compile("(\\d+):([^:]*):(/.*)");

  private final List<Group> groups;
  private long looked = System.nanoTime() - FRESH_NANOS;

  private static final class Group {
    final Path folder;
    final boolean first;
    long limit = NO_LIMIT;

    Group(Path folder, boolean first) {
      this.folder = folder;
      this.first = first;
    }

    private Path limitFile() {
      return folder.resolve(first ? "memory.limit_in_bytes" : "memory.max");
    }

    private Path usageFile() {
      return folder.resolve(first ? "memory.usage_in_bytes" : "memory.current");
    }

    /** Bytes that can still be taken, exactly if it is less than wanted. */
    private long room(long wanted) {
      long used = number(text(usageFile()));
      if (used < 0) {
        return Long.MAX_VALUE;
      }
      long room = limit - used;
      // The statistics are long, and dear to make.
      return room >= wanted ? room : room + droppable();
    }

    private long droppable() {
      long sum = 0;
      String prefix = first ? "total_" : "";
      for (String line : text(folder.resolve("memory.stat")).lines().toList()) {
        if (line.startsWith(prefix + "inactive_file ")
            || line.startsWith(prefix + "active_file ")) {
          sum += Math.max(0, number(line.substring(line.indexOf(' ') + 1)));
        }
      }
      return sum;
    }
  }

  private ControlGroups(List<Group> groups) {
    this.groups = List.copyOf(groups);
  }

  /** Those of this process. */
  public static ControlGroups here() {
    return under(Path.of("/"));
  }

  /** Those that the files under a folder tell of, which stands for the root. */
  static ControlGroups under(Path root) {
    List<Group> groups = new ArrayList<>();
    for (String line : text(root.resolve("proc/self/cgroup")).lines().toList()) {
      Matcher matcher = LINE.matcher(line);
      if (matcher.matches()) {
        if (List.of(matcher.group(2).split(",")).contains("memory")) {
          add(groups, root.resolve("sys/fs/cgroup/memory"), matcher.group(3), true);
        } else if (matcher.group(2).isEmpty()) {
          add(groups, root.resolve("sys/fs/cgroup"), matcher.group(3), false);
        }
      }
    }
    return new ControlGroups(groups);
  }

  /** In a container the mount may be the group itself, and what is above is not to be seen. */
  private static void add(List<Group> groups, Path mount, String name, boolean first) {
    for (Path at = Path.of(name); at != null; at = at.getParent()) {
      Group group = new Group(mount.resolve(Path.of("/").relativize(at)), first);
      if (Files.isReadable(group.limitFile())) {
        groups.add(group);
      }
    }
  }

  /**
   * Refuses to take memory for which a group has no room.
   *
   * @throws SystemErrorException if one has not; it names the group, its limit and its use
   */
  public synchronized void require(long bytes) {
    if (System.nanoTime() - looked >= FRESH_NANOS) {
      for (Group group : groups) {
        long limit = number(text(group.limitFile()));
        group.limit = limit < 0 ? NO_LIMIT : limit;
      }
      looked = System.nanoTime();
    }
    long wanted = bytes + MARGIN;
    for (Group group : groups) {
      long room = group.limit >= NO_LIMIT ? Long.MAX_VALUE : group.room(wanted);
      if (room < wanted) {
        throw new SystemErrorException(
            "cannot allocate "
                + bytes
                + " bytes: the control group "
                + group.folder
                + " has a limit of "
                + group.limit
                + " B, of which "
                + Math.max(0, room)
                + " B are left",
            "take less, or raise the container's memory limit");
      }
    }
  }

  /** −1 for "max" and whatever else is no number. */
  private static long number(String text) {
    try {
      return Long.parseLong(text.strip());
    } catch (NumberFormatException e) {
      return -1;
    }
  }

  private static String text(Path file) {
    try {
      return new String(Files.readAllBytes(file), StandardCharsets.ISO_8859_1);
    } catch (IOException e) {
      LOG.debug("{} is not read", file, e);
      return "";
    }
  }
}
