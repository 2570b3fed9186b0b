package io.nccl4j.internal.host;

import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Device;
import io.nccl4j.internal.host.memory.ProcessMemory;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Stream;

/**
 * What this process holds of the system for communicators.
 *
 * @param descriptors what they stand for, without the jars that class loaders have opened
 * @param mappings of heaps, this process's own included
 * @param bytes allocated from its own heap
 * @param mappedBytes addresses that these mappings take
 */
record Held(List<String> descriptors, long threads, long mappings, long bytes, long mappedBytes) {
  static {
    // The first stream starts the ticker, which stays.
    Device.get(Backend.HOST, 0).newStream().close();
  }

  /** Counts now, after the heap has given back what it can. */
  static Held now() {
    long bytes = ProcessMemory.self().heap().allocatedBytes();
    try (Stream<Path> descriptors = Files.list(Path.of("/proc/self/fd"));
        Stream<String> lines = Files.lines(Path.of("/proc/self/maps"))) {
      List<String> mappings = lines.filter(line -> line.contains("memfd:nccl4j")).toList();
      return new Held(
          descriptors
              .map(Held::target)
              .filter(target -> !target.endsWith(".jar"))
              .sorted()
              .toList(),
          Thread.getAllStackTraces().keySet().stream()
              .filter(thread -> thread.getName().startsWith("nccl4j-"))
              .count(),
          mappings.size(),
          bytes,
          mappings.stream().mapToLong(Held::length).sum());
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** What a descriptor stands for; what the list itself had open is gone by now. */
  private static String target(Path descriptor) {
    try {
      return Files.readSymbolicLink(descriptor).toString();
    } catch (IOException e) {
      return "closed";
    }
  }

  /** Of a line of the list of mappings: {@code from-to …}. */
  private static long length(String line) {
    String[] ends = line.substring(0, line.indexOf(' ')).split("-");
    return Long.parseUnsignedLong(ends[1], 16) - Long.parseUnsignedLong(ends[0], 16);
  }

  /** Waits up to 10 s until there is no more of anything than before. */
  static void assertNoMoreThan(Held before) {
    long end = System.nanoTime() + 10_000_000_000L;
    Held now = now();
    while (!now.fitsInto(before) && System.nanoTime() < end) {
      Thread.onSpinWait();
      now = now();
    }
    assertTrue(now.fitsInto(before), before + " became " + now);
  }

  /** The JVM may have opened a file or two, besides the jars of the class path. */
  private boolean fitsInto(Held before) {
    return descriptors.size() <= before.descriptors.size() + 2
        && threads <= before.threads
        && mappings <= before.mappings
        && bytes <= before.bytes
        && mappedBytes <= before.mappedBytes;
  }
}
