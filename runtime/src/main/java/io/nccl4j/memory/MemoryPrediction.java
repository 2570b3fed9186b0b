package io.nccl4j.memory;

import io.nccl4j.Provider;
import io.nccl4j.Unstable;
import java.util.List;

/**
 * The memory that one rank of a communicator will take, predicted before it is created, for the
 * rank that takes most. All sizes are in bytes. CUDA's context, kernel code and the program's
 * buffers are not included.
 *
 * @param query the query
 * @param lines what will be taken
 */
@Unstable
public record MemoryPrediction(MemoryQuery query, List<Line> lines) {
  /** When memory is taken. */
  public enum When {
    /** By joining. */
    JOIN("joining"),
    /** By the first collectives; those on another path take less. */
    COLLECTIVE("first collective"),
    /** By the first exchange of messages with the peers. */
    EXCHANGE("first send, recv");

    private final String label;

    When(String label) {
      this.label = label;
    }

    /** The short name in tables. */
    public String label() {
      return label;
    }
  }

  /** How a size is known. */
  public enum Basis {
    /** A log of NCCL shows this size, for exactly these values. */
    LOGGED,
    /** It was measured, for exactly these values. */
    MEASURED,
    /** Computed as in NCCL's source. */
    DERIVED,
    /** A size of nccl4j itself. */
    OWN
  }

  /**
   * One purpose.
   *
   * @param purpose what it is for
   * @param place where it will lie
   * @param when it is taken
   * @param bytes how much
   * @param basis how that is known
   * @param source the log, the measurement, or the version of the source
   */
  public record Line(
      MemoryPurpose purpose,
      MemoryPlace place,
      When when,
      long bytes,
      Basis basis,
      String source) {}

  /** A prediction; the list is copied. */
  public MemoryPrediction {
    lines = List.copyOf(lines);
  }

  /** Predicts the memory; touches no device and loads no CUDA library. */
  public static MemoryPrediction of(MemoryQuery query) {
    return Provider.get(MemoryProvider.class).predict(query);
  }

  /** Bytes that a rank takes in a place. */
  public long bytes(MemoryPlace place) {
    return lines.stream().filter(line -> line.place == place).mapToLong(Line::bytes).sum();
  }

  /** Bytes that a rank has taken in a place after a step and those before it. */
  public long bytes(MemoryPlace place, When upTo) {
    return lines.stream()
        .filter(line -> line.place == place && line.when.compareTo(upTo) <= 0)
        .mapToLong(Line::bytes)
        .sum();
  }

  /** Bytes that a rank takes for a purpose. */
  public long bytes(MemoryPurpose purpose) {
    return lines.stream().filter(line -> line.purpose == purpose).mapToLong(Line::bytes).sum();
  }

  /** Bytes that all ranks of one machine take in {@code /dev/shm}. */
  public long shmBytesPerNode() {
    return bytes(MemoryPlace.SHM) * query.value(MemoryQuery.Lever.RANKS_PER_NODE);
  }

  /** A table of the lines, and the sum of each place. */
  @Override
  public String toString() {
    Columns table = new Columns("purpose", "place", "taken by", "bytes", "MiB", "basis", "source");
    for (Line line : lines) {
      table.row(
          line.purpose.label(),
          line.place.label(),
          line.when.label(),
          Long.toString(line.bytes),
          MemoryReport.mib(line.bytes),
          line.basis.name().toLowerCase(java.util.Locale.ROOT),
          line.source);
    }
    for (MemoryPlace place : MemoryPlace.values()) {
      long sum = bytes(place);
      if (sum > 0) {
        table.row("sum", place.label(), "", Long.toString(sum), MemoryReport.mib(sum), "", "");
      }
    }
    return "predicted memory of one rank of "
        + query.value(MemoryQuery.Lever.NRANKS)
        + " on "
        + query.backend().label()
        + "\n"
        + table;
  }
}
