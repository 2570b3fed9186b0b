package io.nccl4j.internal.host;

import io.nccl4j.bindings.Libc;
import io.nccl4j.bindings.Processors;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.BitSet;

/** Facts about this machine that the engine and messages need. */
final class Machine {
  /** Processors this process may use; a container's quota counts. */
  static final int PROCESSORS = Runtime.getRuntime().availableProcessors();

  private static final String PROCESSOR_NAME = readProcessorName();

  private static final BitSet ALLOWED = allowed();

  private Machine() {}

  private static BitSet allowed() {
    return Libc.isAvailable() ? Processors.schedGetaffinity() : new BitSet();
  }

  /**
   * Binds the calling thread to one of the processors this process may use; false if that is not
   * possible.
   */
  static boolean bindThread(int index) {
    if (ALLOWED.isEmpty() || Thread.currentThread().isVirtual()) {
      return false;
    }
    Processors.schedSetaffinity(one(ALLOWED, index));
    return true;
  }

  /**
   * Moves the calling thread to one of the processors it may use, and leaves it as free as it was:
   * threads that it starts, of pools of the whole process perhaps, inherit what it may use.
   */
  static void placeThread(int index) {
    if (ALLOWED.isEmpty() || Thread.currentThread().isVirtual()) {
      return;
    }
    BitSet allowed = Processors.schedGetaffinity();
    Processors.schedSetaffinity(one(allowed, index));
    Processors.schedSetaffinity(allowed);
  }

  private static BitSet one(BitSet of, int index) {
    BitSet one = new BitSet();
    one.set(of.stream().skip(index % of.cardinality()).findFirst().orElseThrow());
    return one;
  }

  /**
   * Lets the calling thread, which may have been started by a bound one, use all processors of this
   * process.
   */
  static void unbindThread() {
    if (!ALLOWED.isEmpty()) {
      Processors.schedSetaffinity(ALLOWED);
    }
  }

  /** Processors that threads can be bound to; 0 if they cannot. */
  static int bindable() {
    return ALLOWED.cardinality();
  }

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
