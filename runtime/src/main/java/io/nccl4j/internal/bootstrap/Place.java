package io.nccl4j.internal.bootstrap;

import io.nccl4j.internal.machine.Machine;
import io.nccl4j.internal.machine.ProcessFiles;
import java.util.UUID;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

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
public record Place(UUID boot, int network, int pids, int pid, long started, String host) {
  // boot, PID namespace, pid and start
  private static final Pattern MARK =
      Pattern.compile("([-0-9a-f]{36})\\.(\\d{1,18})\\.(\\d{1,18})\\.(\\d{1,18})");

  /** This process's place. */
  public static final Place HERE = here();

  private static Place here() {
    int pid = (int) ProcessHandle.current().pid();
    return new Place(
        Machine.bootId(),
        namespace("net"),
        namespace("pid"),
        pid,
        ProcessFiles.HERE.startOf(pid),
        Machine.hostName());
  }

  /** Names this process among all that are and were: see {@link #isGone}. */
  public String mark() {
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
  public static boolean isGone(String mark) {
    Matcher form = MARK.matcher(mark);
    if (!form.matches() || HERE.started == 0) {
      return false;
    }
    long pid = Long.parseLong(form.group(3));
    return !HERE.boot.equals(Machine.NO_BOOT)
        && form.group(1).equals(HERE.boot.toString())
        && HERE.pids != 0
        && Long.parseLong(form.group(2)) == Integer.toUnsignedLong(HERE.pids)
        && (pid > Integer.MAX_VALUE
            || ProcessFiles.HERE.startOf(pid) != Long.parseLong(form.group(4)));
  }

  boolean sameMachine(Place other) {
    return boot.equals(other.boot)
        || boot.equals(Machine.NO_BOOT)
        || other.boot.equals(Machine.NO_BOOT);
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
    return (int) ProcessFiles.HERE.namespace(kind).orElse(0);
  }
}
