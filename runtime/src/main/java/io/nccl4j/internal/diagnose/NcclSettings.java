package io.nccl4j.internal.diagnose;

import io.nccl4j.Setting;
import io.nccl4j.internal.machine.MachineFiles;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * The variables of NCCL that are in force, each with its source. The environment comes first, then
 * the file that {@code NCCL_CONF_FILE} names or else {@code ~/.nccl.conf}, then {@code
 * /etc/nccl.conf}; of several lines in a file the first counts.
 */
public final class NcclSettings {
  private static final String PREFIX = "NCCL_";
  private static final String FILE_VARIABLE = "NCCL_CONF_FILE";
  private static final String SYSTEM_FILE = "/etc/nccl.conf";

  /** As in the C library: the number a text begins with, decimal, octal or hexadecimal. */
  private static final Pattern NUMBER =
      Pattern.compile("\\s*([+-]?)(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9]\\d*).*", Pattern.DOTALL);

  private final Map<String, Setting> settings = new TreeMap<>();
  private final List<String> files = new ArrayList<>();

  /** Reads the variables and files of a machine. */
  public NcclSettings(MachineFiles machine) {
    machine
        .environment()
        .forEach(
            (name, value) -> {
              if (name.startsWith(PREFIX)) {
                settings.put(name, new Setting(name, value, "environment"));
              }
            });
    String home = machine.variable("HOME");
    String named = machine.variable(FILE_VARIABLE);
    if (!named.isEmpty()) {
      read(machine, Path.of(named).toAbsolutePath().toString());
    } else if (home.startsWith("/")) {
      read(machine, home + "/.nccl.conf");
    }
    read(machine, SYSTEM_FILE);
  }

  private void read(MachineFiles machine, String file) {
    if (machine.exists(file)) {
      files.add(file);
    }
    for (String line : machine.lines(file)) {
      int equals = line.indexOf('=');
      if (equals > 0 && line.startsWith(PREFIX)) {
        String name = line.substring(0, equals);
        settings.putIfAbsent(name, new Setting(name, line.substring(equals + 1), file));
      }
    }
  }

  /** The files that there are, in the order in which they count. */
  List<String> files() {
    return List.copyOf(files);
  }

  /** All that are set, by name. */
  public List<Setting> all() {
    return List.copyOf(settings.values());
  }

  /** The value of one; empty if it is not set. */
  public String value(String name) {
    Setting setting = settings.get(name);
    return setting == null ? "" : setting.value();
  }

  /** The number that one is set to, as NCCL reads it; empty if it is not set, or to no number. */
  public OptionalLong number(String name) {
    Matcher matcher = NUMBER.matcher(value(name));
    if (!matcher.matches()) {
      return OptionalLong.empty();
    }
    try {
      return OptionalLong.of(Long.decode(matcher.group(1) + matcher.group(2)));
    } catch (NumberFormatException e) {
      // More than a long holds: NCCL takes its default.
      return OptionalLong.empty();
    }
  }
}
