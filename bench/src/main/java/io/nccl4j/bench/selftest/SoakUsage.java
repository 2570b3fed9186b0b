package io.nccl4j.bench.selftest;

import io.nccl4j.Backend;
import io.nccl4j.bench.machine.ByteSize;
import io.nccl4j.bench.machine.ThisProcess;
import io.nccl4j.memory.MemoryPurpose;
import io.nccl4j.memory.MemoryReport;
import java.lang.management.ManagementFactory;
import java.util.Arrays;
import java.util.EnumMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Collectors;

/**
 * What a process has in use between two episodes of the soak.
 *
 * @param seconds since it was started
 * @param values of everything that must not grow
 * @param details the kinds of descriptors and the names of threads, with how many there are
 */
public record SoakUsage(long seconds, Map<Quantity, Long> values, String details) {
  private static final long SETTLING_NANOS = 2_000_000_000;
  private static final long LOOK_NANOS = 5_000_000;

  /** Something that must not grow. */
  public enum Quantity {
    /** What the JVM's compilers take goes up and down by some MiB. */
    RESIDENT("resident", "MiB", ByteSize.MIB, 24 * ByteSize.MIB),
    /** Pages may be huge. */
    SHARED("shared", "MiB", ByteSize.MIB, 4 * ByteSize.MIB),
    /** Expected results are kept, for each type, reduction and number of ranks. */
    HEAP("Java heap", "MiB", ByteSize.MIB, 4 * ByteSize.MIB),
    BOOKED("booked", "B", 1, 0),
    DESCRIPTORS("descriptors", "", 1, 2),
    THREADS("threads", "", 1, 2);

    private final String label;
    private final String unit;
    private final long divisor;
    private final long limit;

    Quantity(String label, String unit, long divisor, long limit) {
      this.label = label;
      this.unit = unit;
      this.divisor = divisor;
      this.limit = limit;
    }

    /** Its name for people. */
    String label() {
      return label;
    }

    /** The most that it may grow. */
    long limit() {
      return limit;
    }

    /** An amount of it, with its unit. */
    String text(long amount) {
      return divisor == 1
          ? (amount + " " + unit).strip()
          : String.format(Locale.ROOT, "%.1f %s", (double) amount / divisor, unit);
    }
  }

  /** Copies the map. */
  public SoakUsage {
    values = Map.copyOf(values);
  }

  /**
   * Of this process now.
   *
   * @param nranks ranks' devices are those below
   * @param alone whether no rank of another process may still be at work
   */
  static SoakUsage now(int nranks, boolean alone) {
    long booked = settled(nranks, alone ? 0 : SETTLING_NANOS);
    System.gc();
    Map<Quantity, Long> values = new EnumMap<>(Quantity.class);
    values.put(Quantity.RESIDENT, ThisProcess.privateResidentBytes().orElse(0));
    values.put(Quantity.SHARED, ThisProcess.sharedResidentBytes().orElse(0));
    values.put(Quantity.HEAP, ThisProcess.liveHeapBytes());
    values.put(Quantity.BOOKED, booked);
    Map<String, Integer> details = new TreeMap<>();
    List<String> descriptors = ThisProcess.descriptors();
    descriptors.forEach(to -> details.merge("to " + withoutNumbers(to), 1, Integer::sum));
    values.put(Quantity.DESCRIPTORS, (long) descriptors.size());
    values.put(Quantity.THREADS, (long) ManagementFactory.getThreadMXBean().getThreadCount());
    Thread.getAllStackTraces()
        .keySet()
        .forEach(
            thread -> details.merge("thread " + withoutNumbers(thread.getName()), 1, Integer::sum));
    return new SoakUsage(
        TimeUnit.MILLISECONDS.toSeconds(ManagementFactory.getRuntimeMXBean().getUptime()),
        values,
        details.entrySet().stream()
            .map(entry -> entry.getValue() + " " + entry.getKey())
            .collect(Collectors.joining(", ")));
  }

  /**
   * Bytes that are booked. What was kept back for ranks of other processes, which may be a moment
   * later, is given back when something is allocated.
   */
  private static long settled(int nranks, long nanos) {
    long end = System.nanoTime() + nanos;
    long booked = booked(nranks);
    while (booked > 0) {
      SelfTest.device(Backend.HOST, 0).allocate(1).close();
      booked = booked(nranks);
      if (System.nanoTime() - end >= 0) {
        break;
      }
      LockSupport.parkNanos(LOOK_NANOS);
    }
    return booked;
  }

  private static long booked(int nranks) {
    long booked = 0;
    for (int rank = 0; rank < nranks; rank++) {
      MemoryReport report = MemoryReport.of(SelfTest.device(Backend.HOST, rank));
      booked +=
          report.lines().stream()
              .filter(line -> line.purpose() != MemoryPurpose.UNUSED)
              .mapToLong(MemoryReport.Line::bytes)
              .sum();
    }
    return booked;
  }

  private static String withoutNumbers(String name) {
    return name.replaceAll("\\d+", "#").replace(',', ' ');
  }

  /** As one line of text. */
  String format() {
    return seconds
        + "\t"
        + Arrays.stream(Quantity.values())
            .map(quantity -> String.valueOf(values.get(quantity)))
            .collect(Collectors.joining("\t"))
        + "\t"
        + details;
  }

  /** What {@link #format} made. */
  static SoakUsage parse(String line) {
    Quantity[] quantities = Quantity.values();
    String[] parts = line.split("\t", quantities.length + 2);
    Map<Quantity, Long> values = new EnumMap<>(Quantity.class);
    for (Quantity quantity : quantities) {
      values.put(quantity, Long.parseLong(parts[quantity.ordinal() + 1]));
    }
    return new SoakUsage(Long.parseLong(parts[0]), values, parts[quantities.length + 1]);
  }
}
