package io.nccl4j.memory;

import io.nccl4j.Communicator;
import io.nccl4j.Device;
import io.nccl4j.Provider;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;

/**
 * A snapshot of memory in use. All sizes are in bytes.
 *
 * @param title whose memory it is
 * @param lines what was booked, and what NCCL says it took
 * @param comparisons what was booked against what the device reports; others on the same device may
 *     cause the difference
 */
public record MemoryReport(String title, List<Line> lines, List<Comparison> comparisons) {
  /**
   * One purpose of one owner.
   *
   * @param owner a rank of a communicator, a device, or the process
   * @param purpose what it is for
   * @param place where it lies
   * @param bytes taken now
   * @param peakBytes the most taken at once
   * @param basis the source: {@code booked} by nccl4j when it allocated, or a call of NCCL
   */
  public record Line(
      String owner,
      MemoryPurpose purpose,
      MemoryPlace place,
      long bytes,
      long peakBytes,
      String basis) {}

  /**
   * Two values for one quantity.
   *
   * @param what the quantity
   * @param bookedBytes the booked value
   * @param bookedBasis its source
   * @param measuredBytes the measured value
   * @param measuredBasis its source
   */
  public record Comparison(
      String what, long bookedBytes, String bookedBasis, long measuredBytes, String measuredBasis) {
    /** Measured minus booked. */
    public long differenceBytes() {
      return measuredBytes - bookedBytes;
    }
  }

  /** A report; the lists are copied. */
  public MemoryReport {
    lines = List.copyOf(lines);
    comparisons = List.copyOf(comparisons);
  }

  /**
   * The memory that this process has taken on a device, by owner: buffers of the program,
   * communicators, and memory taken from the system that is in no buffer. On the host backend the
   * latter belongs to the process, and every device shows it. Any thread may call this.
   */
  public static MemoryReport of(Device device) {
    return Provider.get(MemoryProvider.class).report(device);
  }

  /**
   * The memory that a rank has taken for a communicator: what nccl4j has booked, and on the cuda
   * backend what NCCL says it took. It includes the program's registered buffers; other buffers
   * count towards their device. Any thread may call this; if the communicator has failed, or is
   * inside a call of NCCL, the report has the lines that are known.
   */
  public static MemoryReport of(Communicator communicator) {
    return Provider.get(MemoryProvider.class).report(communicator);
  }

  /** Bytes taken in a place. */
  public long bytes(MemoryPlace place) {
    return lines.stream().filter(line -> line.place == place).mapToLong(Line::bytes).sum();
  }

  /** Bytes taken for a purpose, in any place. */
  public long bytes(MemoryPurpose purpose) {
    return lines.stream().filter(line -> line.purpose == purpose).mapToLong(Line::bytes).sum();
  }

  /** A table of the lines, the sum of each place, and the comparisons. */
  @Override
  public String toString() {
    Columns table = new Columns("owner", "purpose", "place", "bytes", "MiB", "most bytes", "basis");
    lines.stream()
        .sorted(Comparator.comparing(Line::place).thenComparing(Line::purpose))
        .forEach(
            line ->
                table.row(
                    line.owner,
                    line.purpose.label(),
                    line.place.label(),
                    Long.toString(line.bytes),
                    mib(line.bytes),
                    Long.toString(line.peakBytes),
                    line.basis));
    for (MemoryPlace place : MemoryPlace.values()) {
      if (lines.stream().anyMatch(line -> line.place == place)) {
        long sum = bytes(place);
        table.row("sum", "", place.label(), Long.toString(sum), mib(sum), "", "");
      }
    }
    StringBuilder text = new StringBuilder("memory of " + title + '\n').append(table);
    for (Comparison c : comparisons) {
      text.append(
          String.format(
              Locale.ROOT,
              "  %s: %d B (%s), %d B (%s), difference %+d B%n",
              c.what,
              c.bookedBytes,
              c.bookedBasis,
              c.measuredBytes,
              c.measuredBasis,
              c.differenceBytes()));
    }
    return text.toString();
  }

  static String mib(long bytes) {
    return String.format(Locale.ROOT, "%.2f", bytes / (double) (1 << 20));
  }
}
