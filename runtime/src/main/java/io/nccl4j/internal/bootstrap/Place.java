package io.nccl4j.internal.bootstrap;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.UUID;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;

/**
 * Where a process runs. What the system does not tell is 0 or empty, and is never held against
 * anybody.
 *
 * @param boot random name of the machine's last start
 * @param network number of the network namespace, in which abstract socket names are known
 * @param pids number of the PID namespace, in which process ids are known
 * @param pid process id in that namespace
 * @param started when the process started, in clock ticks since the boot: tells processes apart
 *     that had the same id one after the other
 * @param host name of the machine or container
 */
record Place(UUID boot, int network, int pids, int pid, long started, String host) {
  private static final Logger LOG = LogManager.getLogger(Place.class);

  /** What a boot id is where there is none. */
  static final UUID NO_BOOT = new UUID(0, 0);

  // Fields of /proc/PID/stat after the closing parenthesis of the command's name.
  private static final int STATE_FIELD = 0;
  private static final int FLAGS_FIELD = 6;
  private static final int START_FIELD = 19;

  // boot, PID namespace, pid and start
  private static final Pattern MARK =
      Pattern.compile("([-0-9a-f]{36})\\.(\\d{1,18})\\.(\\d{1,18})\\.(\\d{1,18})");

  /** Flag of a process that is ending. */
  private static final long PF_EXITING = 4;

  /** This process's place. */
  static final Place HERE = here();

  private static Place here() {
    int pid = (int) ProcessHandle.current().pid();
    String boot = read(Path.of("/proc/sys/kernel/random/boot_id"));
    return new Place(
        boot.length() == 36 ? UUID.fromString(boot) : NO_BOOT,
        namespace("net"),
        namespace("pid"),
        pid,
        startOf(pid),
        read(Path.of("/proc/sys/kernel/hostname")));
  }

  /** When a process of this PID namespace started, in clock ticks; 0 if it ended or is ending. */
  static long startOf(int pid) {
    String stat = read(Path.of("/proc", Integer.toString(pid), "stat"));
    String[] fields = stat.substring(stat.lastIndexOf(')') + 1).strip().split(" ");
    boolean ended =
        fields.length <= START_FIELD
            || "ZX".contains(fields[STATE_FIELD])
            || (Long.parseLong(fields[FLAGS_FIELD]) & PF_EXITING) != 0;
    return ended ? 0 : Long.parseLong(fields[START_FIELD]);
  }

  /** Names this process among all that are and were: see {@link #isGone}. */
  String mark() {
    return String.join(
        ".",
        boot.toString(),
        Integer.toUnsignedString(pids),
        Integer.toString(pid),
        Long.toString(started));
  }

  /**
   * Whether the process with this mark has certainly ended. Of one of another machine, of an
   * earlier start of this one or of another PID namespace nobody here can tell.
   */
  static boolean isGone(String mark) {
    Matcher form = MARK.matcher(mark);
    if (!form.matches() || HERE.started == 0) {
      return false;
    }
    long pid = Long.parseLong(form.group(3));
    return !HERE.boot.equals(NO_BOOT)
        && form.group(1).equals(HERE.boot.toString())
        && HERE.pids != 0
        && Long.parseLong(form.group(2)) == Integer.toUnsignedLong(HERE.pids)
        && (pid > Integer.MAX_VALUE || startOf((int) pid) != Long.parseLong(form.group(4)));
  }

  boolean sameMachine(Place other) {
    return boot.equals(other.boot) || boot.equals(NO_BOOT) || other.boot.equals(NO_BOOT);
  }

  boolean sameNetwork(Place other) {
    return network == other.network || network == 0 || other.network == 0;
  }

  boolean samePids(Place other) {
    return samePids(other.pids);
  }

  boolean samePids(int otherPids) {
    return pids == otherPids || pids == 0 || otherPids == 0;
  }

  private static int namespace(String kind) {
    try {
      // For example net:[4026531840]
      String link = Files.readSymbolicLink(Path.of("/proc/self/ns", kind)).toString();
      return Integer.parseUnsignedInt(link, link.indexOf('[') + 1, link.indexOf(']'), 10);
    } catch (IOException | RuntimeException e) {
      LOG.debug("the {} namespace is not known", kind, e);
      return 0;
    }
  }

  private static String read(Path file) {
    try {
      return Files.readString(file, StandardCharsets.ISO_8859_1).strip();
    } catch (IOException e) {
      LOG.debug("{} cannot be read", file, e);
      return "";
    }
  }
}
