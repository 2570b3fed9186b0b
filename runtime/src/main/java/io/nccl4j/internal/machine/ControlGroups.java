package io.nccl4j.internal.machine;

import io.nccl4j.SystemErrorException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * The control groups that this process's memory counts for: its own and all above. What a process
 * takes beyond a limit is no error but its end, by SIGKILL: so it is asked for before.
 *
 * <p>File pages that can be dropped count as room. What others take between a look and the taking
 * of the memory cannot be known. Thread-safe.
 */
public final class ControlGroups {
  private static final String MOUNT = "/sys/fs/cgroup";
  private static final String MOUNT_1 = "/sys/fs/cgroup/memory";

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
    final MachineFiles machine;
    final String folder;
    final boolean first;
    long limit = NO_LIMIT;

    Group(MachineFiles machine, String folder, boolean first) {
      this.machine = machine;
      this.folder = folder;
      this.first = first;
    }

    private String limitFile() {
      return folder + (first ? "/memory.limit_in_bytes" : "/memory.max");
    }

    private void readLimit() {
      long number = number(machine.text(limitFile()));
      limit = number < 0 ? NO_LIMIT : Math.min(number, NO_LIMIT);
    }

    /** −1 if it is not known. */
    private long usedBytes() {
      return number(machine.text(folder + (first ? "/memory.usage_in_bytes" : "/memory.current")));
    }

    /** Bytes that can still be taken, exactly if it is less than wanted. */
    private long room(long wanted) {
      long used = usedBytes();
      if (used < 0) {
        return Long.MAX_VALUE;
      }
      long room = limit - used;
      // The statistics are long, and dear to make.
      return room >= wanted ? room : room + statistic("inactive_file") + statistic("active_file");
    }

    private long statistic(String name) {
      String field = (first ? "total_" : "") + name + " ";
      return machine.lines(folder + "/memory.stat").stream()
          .filter(line -> line.startsWith(field))
          .mapToLong(line -> Math.max(0, number(line.substring(field.length()))))
          .sum();
    }
  }

  private ControlGroups(List<Group> groups) {
    this.groups = List.copyOf(groups);
  }

  /** Those of this process. */
  public static ControlGroups here() {
    return of(MachineFiles.here());
  }

  /** Those that a machine's files tell of. */
  public static ControlGroups of(MachineFiles machine) {
    List<Group> groups = new ArrayList<>();
    for (String line : machine.processes().controlGroups()) {
      Matcher matcher = LINE.matcher(line);
      if (matcher.matches()) {
        if (List.of(matcher.group(2).split(",")).contains("memory")) {
          add(groups, machine, MOUNT_1, matcher.group(3), true);
        } else if (matcher.group(2).isEmpty()) {
          add(groups, machine, MOUNT, matcher.group(3), false);
        }
      }
    }
    return new ControlGroups(groups);
  }

  /** In a container the mount may be the group itself, and what is above is not to be seen. */
  private static void add(
      List<Group> groups, MachineFiles machine, String mount, String name, boolean first) {
    for (Path at = Path.of(name); at != null; at = at.getParent()) {
      String folder = mount + (at.getNameCount() == 0 ? "" : at);
      Group group = new Group(machine, folder, first);
      if (Files.isReadable(machine.path(group.limitFile()))) {
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
      groups.forEach(Group::readLimit);
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

  /**
   * The limit that leaves the least room, now; empty if no group has one. Of the file pages only
   * those count as room that were not used lately, as container managers count.
   */
  public synchronized Optional<MemoryLimit> tightest() {
    groups.forEach(Group::readLimit);
    return groups.stream()
        .filter(group -> group.limit < NO_LIMIT)
        .map(
            group ->
                new MemoryLimit(
                    group.folder,
                    group.limit,
                    Math.max(0, group.usedBytes() - group.statistic("inactive_file"))))
        .min(Comparator.comparingLong(MemoryLimit::roomBytes));
  }

  /** −1 for "max" and whatever else is no number. */
  private static long number(String text) {
    try {
      return Long.parseLong(text.strip());
    } catch (NumberFormatException e) {
      return -1;
    }
  }
}
