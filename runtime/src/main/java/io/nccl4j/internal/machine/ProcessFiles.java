package io.nccl4j.internal.machine;

import java.io.IOException;
import java.nio.file.DirectoryIteratorException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.UserPrincipal;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.OptionalLong;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;

/** What a machine tells about its processes, this one among them: the folder {@code /proc}. */
public final class ProcessFiles {
  private static final Logger LOG = LogManager.getLogger(ProcessFiles.class);

  /** What {@link #softLimit} returns where there is no limit. */
  public static final long UNLIMITED = Long.MAX_VALUE;

  // Fields of PID/stat after the closing parenthesis of the command's name.
  private static final int STATE_FIELD = 0;
  private static final int FLAGS_FIELD = 6;
  private static final int START_FIELD = 19;

  /** Flag of a process that is ending. */
  private static final long PF_EXITING = 4;

  // Fields of a line of PID/mounts.
  private static final int POINT_FIELD = 1;
  private static final int OPTIONS_FIELD = 3;

  /** The process files of this machine. */
  public static final ProcessFiles HERE = MachineFiles.here().processes();

  private final Path proc;
  private final Path self;

  ProcessFiles(Path proc) {
    this.proc = proc;
    this.self = proc.resolve("self");
  }

  /** The ids of all processes that can be seen. */
  public List<Long> ids() throws IOException {
    List<Long> ids = new ArrayList<>();
    try (DirectoryStream<Path> processes = Files.newDirectoryStream(proc, "[0-9]*")) {
      processes.forEach(process -> ids.add(Long.parseLong(process.getFileName().toString())));
    } catch (DirectoryIteratorException e) {
      throw e.getCause();
    }
    return ids;
  }

  /** Whether there is such a process. */
  public boolean exists(long pid) {
    return Files.exists(of(pid));
  }

  /** What a process maps, a line for each mapping: see proc_pid_maps(5). */
  public List<String> maps(long pid) throws IOException {
    return new String(Files.readAllBytes(of(pid).resolve("maps")), MachineFiles.CHARSET)
        .lines()
        .toList();
  }

  /** The folder in which what a process has open is named by descriptors. */
  public Path descriptors(long pid) {
    return of(pid).resolve("fd");
  }

  /** The name of a process's command, at most 15 letters; empty if it is not known. */
  public String command(long pid) {
    return MachineFiles.text(of(pid).resolve("comm")).strip();
  }

  /** When a process started, in clock ticks since the boot; 0 if it ended or is ending. */
  public long startOf(long pid) {
    String stat = MachineFiles.text(of(pid).resolve("stat"));
    String[] fields = stat.substring(stat.lastIndexOf(')') + 1).strip().split(" ");
    boolean ended =
        fields.length <= START_FIELD
            || "ZX".contains(fields[STATE_FIELD])
            || (Long.parseLong(fields[FLAGS_FIELD]) & PF_EXITING) != 0;
    return ended ? 0 : Long.parseLong(fields[START_FIELD]);
  }

  /** Whether a process is stopped, by a signal or a debugger. */
  public boolean isStopped(long pid) {
    String stat = MachineFiles.text(of(pid).resolve("stat"));
    String state = stat.substring(stat.lastIndexOf(')') + 1).strip();
    return state.startsWith("T") || state.startsWith("t");
  }

  /** Whether a process was started with a variable; not so where this user may not look. */
  public boolean hasVariable(long pid, String variable) {
    try {
      byte[] environ = Files.readAllBytes(of(pid).resolve("environ"));
      return ("\0" + new String(environ, MachineFiles.CHARSET)).contains("\0" + variable + "=");
    } catch (IOException e) {
      LOG.debug("the environment of process {} is not read", pid, e);
      return false;
    }
  }

  private Path of(long pid) {
    return proc.resolve(Long.toString(pid));
  }

  // ---- this process

  /** The user who runs this process; empty if the system does not tell. */
  public Optional<UserPrincipal> owner() throws IOException {
    return Files.exists(self) ? Optional.of(Files.getOwner(self)) : Optional.empty();
  }

  /** The number of the user who runs this process; empty if the system does not tell. */
  public Optional<String> ownerNumber() {
    try {
      return Optional.of(Files.getAttribute(self, "unix:uid").toString());
    } catch (IOException | UnsupportedOperationException | IllegalArgumentException notLinux) {
      LOG.debug("the user has no number here", notLinux);
      return Optional.empty();
    }
  }

  /** The number of the namespace of a kind, for example {@code net}, that this process is in. */
  public OptionalLong namespace(String kind) {
    try {
      // For example net:[4026531840]
      String link = Files.readSymbolicLink(self.resolve("ns").resolve(kind)).toString();
      return OptionalLong.of(Long.parseLong(link, link.indexOf('[') + 1, link.indexOf(']'), 10));
    } catch (IOException | RuntimeException e) {
      LOG.debug("the {} namespace is not known", kind, e);
      return OptionalLong.empty();
    }
  }

  /** A field of this process's status, for example {@code CapEff}; empty if there is none. */
  public String status(String field) {
    return lines("status").stream()
        .filter(line -> line.startsWith(field + ":"))
        .map(line -> line.substring(field.length() + 1).strip())
        .findFirst()
        .orElse("");
  }

  /**
   * A soft limit of this process by its name, for example {@code Max open files}; {@link
   * #UNLIMITED}, or −1 if it is not known.
   */
  public long softLimit(String name) {
    for (String line : lines("limits")) {
      if (line.startsWith(name + " ")) {
        String value = line.substring(name.length()).strip().split(" ")[0];
        return value.equals("unlimited") ? UNLIMITED : Long.parseLong(value);
      }
    }
    return -1;
  }

  /** The control groups of this process, a line for each hierarchy: see cgroups(7). */
  public List<String> controlGroups() {
    return lines("cgroup");
  }

  /**
   * The options of the mount that shows a folder: of those on the same folder the last one, whereas
   * Java's own answer is that of the first.
   */
  public List<String> mountOptions(String folder) {
    String options = "";
    String point = "";
    for (String line : lines("mounts")) {
      String[] parts = line.split(" ");
      if (parts.length > OPTIONS_FIELD
          && slashed(folder).startsWith(slashed(parts[POINT_FIELD]))
          && parts[POINT_FIELD].length() >= point.length()) {
        point = parts[POINT_FIELD];
        options = parts[OPTIONS_FIELD];
      }
    }
    return List.of(options.split(","));
  }

  private static String slashed(String path) {
    return path.endsWith("/") ? path : path + "/";
  }

  private List<String> lines(String file) {
    return MachineFiles.text(self.resolve(file)).lines().toList();
  }
}
