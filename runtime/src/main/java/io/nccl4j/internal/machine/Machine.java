package io.nccl4j.internal.machine;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.util.Optional;
import java.util.UUID;
import java.util.stream.Stream;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;

/** Facts about this machine. */
public final class Machine {
  private static final Logger LOG = LogManager.getLogger(Machine.class);

  /** Processors this process may use; a container's quota counts. */
  public static final int PROCESSORS = Runtime.getRuntime().availableProcessors();

  /** What a boot id is where there is none. */
  public static final UUID NO_BOOT = new UUID(0, 0);

  private static final int UUID_LETTERS = 36;
  private static final long ASSUMED_MEMORY = 16L << 30;
  private static final MachineFiles FILES = MachineFiles.here();

  private Machine() {}

  /** Read when it is asked for. */
  private static final class ProcessorName {
    static final String TEXT =
        field("/proc/cpuinfo", "model name").orElse(System.getProperty("os.arch"));
  }

  /** How many processors it has; this process may be confined to some of them. */
  public static int allProcessors() {
    return allProcessors(FILES);
  }

  static int allProcessors(MachineFiles files) {
    String online = files.text("/sys/devices/system/cpu/online").strip();
    return Math.max(PROCESSORS, Affinity.parse(online).cardinality());
  }

  /** The processors' name; where the system does not tell it, their architecture. */
  public static String processorName() {
    return ProcessorName.TEXT;
  }

  /** All memory it has, in bytes; 16 GiB where the system does not tell. */
  public static long memoryBytes() {
    return field("/proc/meminfo", "MemTotal")
        .map(kibibytes -> Long.parseLong(kibibytes.replaceAll("\\D", "")) << 10)
        .orElse(ASSUMED_MEMORY);
  }

  /** The name of the machine or container; empty where the system does not tell. */
  public static String hostName() {
    return FILES.text("/proc/sys/kernel/hostname").strip();
  }

  /** A random name of the machine's last start, or {@link #NO_BOOT}. */
  public static UUID bootId() {
    String boot = FILES.text("/proc/sys/kernel/random/boot_id").strip();
    return boot.length() == UUID_LETTERS ? UUID.fromString(boot) : NO_BOOT;
  }

  /** What follows the colon in the first line that starts so; nothing behind it is read. */
  private static Optional<String> field(String file, String name) {
    try (Stream<String> lines = Files.lines(FILES.path(file), MachineFiles.CHARSET)) {
      return lines
          .filter(line -> line.startsWith(name))
          .map(line -> line.substring(line.indexOf(':') + 1).strip())
          .findFirst();
    } catch (IOException | UncheckedIOException e) {
      LOG.debug("{} is not read", file, e);
      return Optional.empty();
    }
  }
}
