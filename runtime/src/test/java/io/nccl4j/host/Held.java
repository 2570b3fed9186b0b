package io.nccl4j.host;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.stream.Stream;

/** What this process holds of the system for communicators. */
record Held(long descriptors, long threads, long mappings) {
  /** Counts now, after the heap has given back what it can. */
  static Held now() {
    long ignored = HostProcess.self().heap().allocatedBytes();
    try (Stream<Path> descriptors = Files.list(Path.of("/proc/self/fd"));
        Stream<String> mappings = Files.lines(Path.of("/proc/self/maps"))) {
      return new Held(
          descriptors.count(),
          Thread.getAllStackTraces().keySet().stream()
              .filter(thread -> thread.getName().startsWith("nccl4j-"))
              .count(),
          mappings.filter(line -> line.contains("memfd:nccl4j")).count());
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** Waits up to 10 s until there is no more of anything than before; returns what there is then. */
  static Held settled(Held before) {
    long end = System.nanoTime() + 10_000_000_000L;
    Held now = now();
    while (!now.fitsInto(before) && System.nanoTime() < end) {
      Thread.onSpinWait();
      now = now();
    }
    return now;
  }

  /** The class loader may have opened a file or two. */
  boolean fitsInto(Held before) {
    return descriptors <= before.descriptors + 2
        && threads <= before.threads
        && mappings <= before.mappings;
  }

  @Override
  public String toString() {
    return "held " + descriptors + " " + threads + " " + mappings;
  }
}
