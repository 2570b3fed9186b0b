package io.nccl4j.internal.cuda.nccl;

import io.nccl4j.NcclException;
import io.nccl4j.cuda.NcclMemoryStatistics;
import io.nccl4j.internal.cuda.memory.DeviceMemory;
import io.nccl4j.memory.MemoryPlace;
import io.nccl4j.memory.MemoryPrediction;
import io.nccl4j.memory.MemoryPrediction.When;
import io.nccl4j.memory.MemoryPurpose;
import io.nccl4j.memory.MemoryReport.Comparison;
import io.nccl4j.memory.MemoryReport.Line;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * What joining took of the devices of one call's ranks: what was predicted, what was booked, what
 * NCCL says, and by how much the free memory shrank.
 */
public final class JoinMemory {
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
  public record Rank(
      @Nullable MemoryPrediction prediction,
      int ranks,
      long free,
      long own,
      @Nullable NcclMemoryStatistics nccl) {
    /** What NCCL is predicted to take of the device, by the first collectives at the latest. */
    public long predicted(When upTo) {
      return prediction == null
          ? 0
          : prediction.bytes(MemoryPlace.DEVICE, upTo) - prediction.bytes(MemoryPurpose.BARRIER);
    }
  }

  private final List<DeviceMemory> devices;
  private final List<Long> free = new ArrayList<>();
  private final List<Long> own = new ArrayList<>();
  private final List<DeviceMemory> unused;

  /** Begins, before NCCL is asked. */
  public JoinMemory(List<DeviceMemory> devices, @Nullable MemoryPrediction prediction) {
    this.devices = devices;
    this.unused = devices.stream().filter(device -> device.heap().isEmpty()).toList();
    for (DeviceMemory device : devices) {
      free.add(prediction == null ? -1 : device.gpu().freeBytes());
      own.add(device.bookedBytes());
    }
  }

  /**
   * What joining took for one of the ranks, after all have joined.
   *
   * @param index of the rank, as of its device
   * @param exact a prediction, which may know more than the one before
   */
  public Rank joined(int index, @Nullable MemoryPrediction exact, CudaCalls calls) {
    DeviceMemory device = devices.get(index);
    long now = free.get(index) < 0 ? -1 : device.gpu().freeBytes();
    return new Rank(
        exact,
        Collections.frequency(devices, device),
        now < 0 ? 0 : free.get(index) - now,
        device.bookedBytes() - own.get(index),
        statistics(calls));
  }

  /** Not all ranks have joined: what was taken for them of devices that had nothing goes back. */
  public void gaveUp() {
    unused.forEach(device -> device.heap().trim());
  }

  /** What NCCL says of a communicator; null where it does not, or is busy with a call of it. */
  public static @Nullable NcclMemoryStatistics statistics(CudaCalls calls) {
    if (!Features.MEMORY_STATISTICS.isPresent() || calls.rank().handle().isInACall()) {
      return null;
    }
    try {
      return NcclQueries.memoryStatistics(calls);
    } catch (NcclException e) {
      // It has failed or is closed, or NCCL was told not to count.
      return null;
    }
  }

  /** NCCL's lines of a report. */
  public static List<Line> lines(
      String owner, @Nullable NcclMemoryStatistics now, @Nullable Rank rank) {
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
  public static List<Comparison> comparisons(
      @Nullable NcclMemoryStatistics now, @Nullable Rank rank) {
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
      long most = rank.predicted(When.COLLECTIVE);
      long trees = rank.prediction.bytes(MemoryPurpose.TREE);
      // What NCCL chooses by the size of an operation is seen by what it has taken.
      boolean connected = trees == 0 || now.totalBytes() > most - trees;
      comparisons.add(
          new Comparison(
              "NCCL by now",
              connected ? most : most - trees,
              "predicted for the first collectives"
                  + (trees == 0 ? "" : connected ? ", with trees" : ", none of them along a tree"),
              now.totalBytes(),
              STATISTICS));
    }
    return comparisons;
  }
}
