package io.nccl4j.bench.machine;

import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.lang.management.MemoryPoolMXBean;
import java.lang.management.MemoryType;
import java.lang.management.MemoryUsage;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.OptionalLong;

/** What this process uses, and where it runs, as far as the system tells. */
public final class ThisProcess {
  private static final Path SELF = Path.of("/proc/self");
  private static final Path HOST_NAME = Path.of("/proc/sys/kernel/hostname");

  private ThisProcess() {}

  /** The most memory it had at once. */
  public static OptionalLong peakResidentBytes() {
    return status("VmHWM");
  }

  /** The memory of its own that it has now. */
  public static OptionalLong privateResidentBytes() {
    return status("RssAnon");
  }

  /** The shared memory that it has now, to which the heap of the host backend belongs. */
  public static OptionalLong sharedResidentBytes() {
    return status("RssShmem");
  }

  private static OptionalLong status(String field) {
    try {
      for (String line : Files.readAllLines(SELF.resolve("status"))) {
        // For example "VmHWM:    123456 kB"
        if (line.startsWith(field + ":")) {
          return OptionalLong.of(Long.parseLong(line.replaceAll("\\D+", "")) << 10);
        }
      }
    } catch (IOException notLinux) {
      return OptionalLong.empty();
    }
    return OptionalLong.empty();
  }

  /** The Java heap as the last collection left it, without what threads have reserved since. */
  public static long liveHeapBytes() {
    long bytes = 0;
    for (MemoryPoolMXBean pool : ManagementFactory.getMemoryPoolMXBeans()) {
      MemoryUsage left = pool.getType() == MemoryType.HEAP ? pool.getCollectionUsage() : null;
      bytes += left == null ? 0 : left.getUsed();
    }
    return bytes;
  }

  /** What its descriptors refer to, one element each; empty if the system does not tell. */
  public static List<String> descriptors() {
    List<String> targets = new ArrayList<>();
    try (DirectoryStream<Path> all = Files.newDirectoryStream(SELF.resolve("fd"))) {
      for (Path descriptor : all) {
        try {
          targets.add(Files.readSymbolicLink(descriptor).toString());
        } catch (IOException closedSince) {
          // The one that reads the folder, or one of another thread.
          continue;
        }
      }
    } catch (IOException notLinux) {
      return List.of();
    }
    return targets;
  }

  /** The name of the machine, without its domain. */
  public static String hostName() {
    String name;
    try {
      name = Files.readString(HOST_NAME).strip();
    } catch (IOException notLinux) {
      try {
        name = InetAddress.getLocalHost().getHostName();
      } catch (UnknownHostException noName) {
        name = "localhost";
      }
    }
    int dot = name.indexOf('.');
    return dot > 0 ? name.substring(0, dot) : name;
  }
}
