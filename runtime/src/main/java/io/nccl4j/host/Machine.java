package io.nccl4j.host;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/** Facts about this machine that the engine and messages need. */
final class Machine {
  /** Processors this process may use; a container's quota counts. */
  static final int PROCESSORS = Runtime.getRuntime().availableProcessors();

  private static final String PROCESSOR_NAME = readProcessorName();

  private Machine() {}

  static String processorName() {
    return PROCESSOR_NAME;
  }

  private static String readProcessorName() {
    try (var lines = Files.lines(Path.of("/proc/cpuinfo"))) {
      return lines
          .filter(line -> line.startsWith("model name"))
          .map(line -> line.substring(line.indexOf(':') + 1).strip())
          .findFirst()
          .orElse(System.getProperty("os.arch"));
    } catch (IOException e) {
      // Not Linux: the architecture is the best name there is.
      return System.getProperty("os.arch");
    }
  }
}
