package io.nccl4j.internal.diagnose;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Optional;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * The control group of memory with the least room: what a process takes beyond it ends in SIGKILL,
 * not in an error.
 *
 * @param group the group's name below the mount
 * @param limitBytes what all its processes may take together
 * @param usedBytes what they take, without file pages that can be dropped
 */
record MemoryLimit(String group, long limitBytes, long usedBytes) {
  private static final String MOUNT = "/sys/fs/cgroup";
  private static final String MOUNT_1 = "/sys/fs/cgroup/memory";

  /** Version 1 writes "no limit" as the largest multiple of a page. */
  private static final long NO_LIMIT = 1L << 60;

  private static final Pattern LINE = Pattern.compile("(\\d+):([^:]*):(/.*)");

  /** Bytes that can still be taken. */
  long roomBytes() {
    return Math.max(0, limitBytes - usedBytes);
  }

  /** Of this process; empty if no group has a limit. */
  static Optional<MemoryLimit> of(MachineFiles machine) {
    String unified = null;
    for (String line : machine.lines("/proc/self/cgroup")) {
      Matcher matcher = LINE.matcher(line);
      if (!matcher.matches()) {
        continue;
      }
      if (List.of(matcher.group(2).split(",")).contains("memory")) {
        return tightest(machine, MOUNT_1, matcher.group(3), "memory.limit_in_bytes");
      }
      if (matcher.group(2).isEmpty()) {
        unified = matcher.group(3);
      }
    }
    return unified == null ? Optional.empty() : tightest(machine, MOUNT, unified, "memory.max");
  }

  /** Groups inherit the limits of those above. In a container the mount may be the group itself. */
  private static Optional<MemoryLimit> tightest(
      MachineFiles machine, String mount, String group, String limitFile) {
    List<MemoryLimit> found = new ArrayList<>();
    for (Path at = Path.of(group); at != null; at = at.getParent()) {
      String folder = mount + (at.getNameCount() == 0 ? "" : at.toString());
      if (Files.isReadable(machine.path(folder + "/" + limitFile))) {
        read(machine, folder, limitFile).ifPresent(found::add);
      }
    }
    return found.stream().min(Comparator.comparingLong(MemoryLimit::roomBytes));
  }

  private static Optional<MemoryLimit> read(MachineFiles machine, String folder, String limitFile) {
    long limit = number(machine.text(folder + "/" + limitFile));
    if (limit < 0 || limit >= NO_LIMIT) {
      return Optional.empty();
    }
    boolean first = limitFile.equals("memory.limit_in_bytes");
    long used =
        number(machine.text(folder + (first ? "/memory.usage_in_bytes" : "/memory.current")));
    String cache = first ? "total_inactive_file " : "inactive_file ";
    long droppable =
        machine.lines(folder + "/memory.stat").stream()
            .filter(line -> line.startsWith(cache))
            .mapToLong(line -> number(line.substring(cache.length())))
            .sum();
    return Optional.of(new MemoryLimit(folder, limit, Math.max(0, used - Math.max(0, droppable))));
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
