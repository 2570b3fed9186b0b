package io.nccl4j.internal.diagnose;

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
 * Where checks look: the files of a machine and the variables of a process. Those of this one, or a
 * test's.
 *
 * @param root folder that stands for the root
 * @param environment variables by name
 */
public record MachineFiles(Path root, Map<String, String> environment) {
  private static final Logger LOG = LogManager.getLogger(MachineFiles.class);

  /** Copies the variables. */
  public MachineFiles {
    environment = Map.copyOf(environment);
  }

  /** This machine, and the variables of this process. */
  public static MachineFiles here() {
    return new MachineFiles(Path.of("/"), System.getenv());
  }

  /** A file by its absolute name. */
  Path path(String absolute) {
    return root.resolve(absolute.substring(1));
  }

  boolean exists(String absolute) {
    return Files.exists(path(absolute));
  }

  /** The lines of a file; none if it is not there or cannot be read. */
  List<String> lines(String absolute) {
    return text(absolute).lines().toList();
  }

  /** What a file holds; nothing if it is not there or cannot be read. */
  String text(String absolute) {
    Path file = path(absolute);
    if (!Files.isRegularFile(file)) {
      // To open a pipe would wait for whoever writes to it, without limit.
      return "";
    }
    try {
      return new String(Files.readAllBytes(file), charset());
    } catch (IOException e) {
      LOG.debug("{} is not read", absolute, e);
      return "";
    }
  }

  /** Files of the system may hold any bytes. */
  Charset charset() {
    return StandardCharsets.ISO_8859_1;
  }

  /** A variable; empty if it is not set. */
  String variable(String name) {
    return environment.getOrDefault(name, "");
  }
}
