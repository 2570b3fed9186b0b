package io.nccl4j;

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
