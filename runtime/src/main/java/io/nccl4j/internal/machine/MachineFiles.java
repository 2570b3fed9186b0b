package io.nccl4j.internal.machine;

import java.io.IOException;
import java.nio.charset.Charset;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;

/**
 * The files of a machine and the variables of a process: those of this one, or a test's.
 *
 * @param root folder that stands for the root
 * @param environment variables by name
 */
public record MachineFiles(Path root, Map<String, String> environment) {
  /** Name of the kernel's setting, as {@code sysctl} has it. */
  public static final String CONGESTION_CONTROL = "net.ipv4.tcp_congestion_control";

  private static final Logger LOG = LogManager.getLogger(MachineFiles.class);

  /** Files of the system may hold any bytes. */
  static final Charset CHARSET = StandardCharsets.ISO_8859_1;

  /** Copies the variables. */
  public MachineFiles {
    environment = Map.copyOf(environment);
  }

  /** This machine, and the variables of this process. */
  public static MachineFiles here() {
    return new MachineFiles(Path.of("/"), System.getenv());
  }

  /** A file by its absolute name. */
  public Path path(String absolute) {
    return root.resolve(absolute.substring(1));
  }

  /** Whether there is such a file. */
  public boolean exists(String absolute) {
    return Files.exists(path(absolute));
  }

  /** The lines of a file; none if it is not there or cannot be read. */
  public List<String> lines(String absolute) {
    return text(absolute).lines().toList();
  }

  /** What a file holds; nothing if it is not there or cannot be read. */
  public String text(String absolute) {
    return text(path(absolute));
  }

  static String text(Path file) {
    if (!Files.isRegularFile(file)) {
      // To open a pipe would wait for whoever writes to it, without limit.
      return "";
    }
    try {
      return new String(Files.readAllBytes(file), CHARSET);
    } catch (IOException e) {
      LOG.debug("{} is not read", file, e);
      return "";
    }
  }

  /** A variable; empty if it is not set. */
  public String variable(String name) {
    return environment.getOrDefault(name, "");
  }

  /** The processes of this machine that can be seen. */
  public ProcessFiles processes() {
    return new ProcessFiles(path("/proc"));
  }

  /** How TCP shares a network, for example {@code cubic}; empty if it is not known. */
  public String congestionControl() {
    return text("/proc/sys/" + CONGESTION_CONTROL.replace('.', '/')).strip();
  }

  /** Whether NVSwitches connect the GPUs. */
  public boolean hasNvSwitches() {
    return exists("/proc/driver/nvidia-nvswitch/devices");
  }

  /** Whether there are InfiniBand or RoCE cards. */
  public boolean hasInfiniband() {
    return exists("/sys/class/infiniband");
  }
}
