package io.nccl4j.internal.cuda;

import io.nccl4j.MemoryPlace;
import io.nccl4j.MemoryPrediction;
import io.nccl4j.MemoryPrediction.When;
import io.nccl4j.MemoryPurpose;
import io.nccl4j.MemoryReport.Comparison;
import io.nccl4j.MemoryReport.Line;
import io.nccl4j.NcclException;
import io.nccl4j.NcclMemoryStatistics;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * What joining took of the devices of one call's ranks: what was predicted, what was booked, what
 * NCCL says, and by how much the free memory shrank.
 */
final class JoinMemory {
  private static final String STATISTICS = "ncclCommMemStats";
  private static final String FREE = "free memory before and after, of the whole device";

  /**
   * What is known of one rank.
   *
   * @param ranks of the call on this rank's device
   * @param free by how much the device's free memory shrank; negative numbers are possible
   * @param own bytes that this backend took meanwhile
   * @param nccl what NCCL said then; null if it does not say
   */
  record Rank(
      @Nullable MemoryPrediction prediction,
      int ranks,
      long free,
      long own,
      @Nullable NcclMemoryStatistics nccl) {
    /** What NCCL is predicted to take of the device, by the first collectives at the latest. */
    long predicted(When upTo) {
      return prediction == null
          ? 0
          : prediction.bytes(MemoryPlace.DEVICE, upTo) - prediction.bytes(MemoryPurpose.BARRIER);
    }
  }

  private final List<CudaDevice> devices;
  private final @Nullable MemoryPrediction prediction;
  private final List<Long> free = new ArrayList<>();
  private final List<Long> own = new ArrayList<>();
  private final List<CudaDevice> unused;

  /** Begins, before NCCL is asked. */
  JoinMemory(List<CudaDevice> devices, @Nullable MemoryPrediction prediction) {
    this.devices = devices;
    this.prediction = prediction;
    this.unused = devices.stream().filter(device -> device.heap().isEmpty()).toList();
    for (CudaDevice device : devices) {
      free.add(prediction == null ? -1 : device.freeBytes());
      own.add(device.book().bytes(device, MemoryPlace.DEVICE));
    }
  }

  /** Ends: all ranks have joined. */
  void joined(List<CudaCommunicator> communicators) {
    joined(communicators, prediction);
  }

  /** As the other form, with a prediction that knows more than the one before. */
  void joined(List<CudaCommunicator> communicators, @Nullable MemoryPrediction exact) {
    for (int i = 0; i < devices.size(); i++) {
      CudaDevice device = devices.get(i);
      long now = free.get(i) < 0 ? -1 : device.freeBytes();
      communicators
          .get(i)
          .joined(
              new Rank(
                  exact,
                  Collections.frequency(devices, device),
                  now < 0 ? 0 : free.get(i) - now,
                  device.book().bytes(device, MemoryPlace.DEVICE) - own.get(i),
                  statistics(communicators.get(i))));
    }
  }

  /** Not all ranks have joined: what was taken for them of devices that had nothing goes back. */
  void gaveUp() {
    unused.forEach(device -> device.heap().trim());
  }

  /** What NCCL says of a communicator; null where it does not, or is busy with a call of it. */
  static @Nullable NcclMemoryStatistics statistics(CudaCommunicator communicator) {
    if (!Features.MEMORY_STATISTICS.isPresent() || communicator.nccl().isInACall()) {
      return null;
    }
    try {
      return NcclQueries.memoryStatistics(communicator);
    } catch (NcclException e) {
      // It has failed or is closed, or NCCL was told not to count.
      return null;
    }
  }

  /** NCCL's lines of a report. */
  static List<Line> lines(String owner, @Nullable NcclMemoryStatistics now, @Nullable Rank rank) {
    if (now != null) {
      long suspendable = now.suspended() ? 0 : now.suspendableBytes();
      return List.of(
          line(owner, suspendable, STATISTICS + ", suspendable"),
          line(owner, now.persistentBytes(), STATISTICS + ", persistent"));
    }
    if (rank == null || rank.prediction == null || rank.nccl != null) {
      return List.of();
    }
    return List.of(
        line(owner, Math.max(0, rank.free - rank.own) / rank.ranks, "joining, by the free memory"));
  }

  private static Line line(String owner, long bytes, String basis) {
    return new Line(owner, MemoryPurpose.NCCL, MemoryPlace.DEVICE, bytes, bytes, basis);
  }

  /** Comparisons of a report. */
  static List<Comparison> comparisons(@Nullable NcclMemoryStatistics now, @Nullable Rank rank) {
    if (rank == null || rank.prediction == null) {
      return List.of();
    }
    List<Comparison> comparisons = new ArrayList<>();
    long predicted = rank.predicted(When.JOIN);
    long nccl = rank.nccl == null ? predicted : rank.nccl.totalBytes();
    comparisons.add(
        new Comparison(
            "joining",
            rank.own + rank.ranks * nccl,
            "booked, and " + (rank.nccl == null ? "predicted" : STATISTICS),
            rank.free,
            FREE));
    if (rank.nccl != null) {
      comparisons.add(
          new Comparison(
              "NCCL by joining", predicted, "predicted", rank.nccl.totalBytes(), STATISTICS));
    }
    if (now != null) {
      comparisons.add(
          new Comparison(
              "NCCL by now",
              rank.predicted(When.COLLECTIVE),
              "predicted for the first collectives",
              now.totalBytes(),
              STATISTICS));
    }
    return comparisons;
  }
}
