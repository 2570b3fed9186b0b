package io.nccl4j.internal.host.engine;

import io.nccl4j.internal.host.layout.ControlBlock;
import io.nccl4j.internal.host.memory.HostHeap;
import io.nccl4j.internal.host.memory.ProcessMemory;
import io.nccl4j.internal.spi.MemoryBook;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import org.jspecify.annotations.Nullable;

/** What the engines know of their rank, and how they reach the memory of the others. */
public final class RankView {
  final int rank;
  final int nranks;

  /** The ranks of this host, this one among them, ascending. */
  final int[] here;

  /** For each rank its place in {@link #here}; −1 for those on other hosts. */
  final int[] placeOf;

  final boolean spansProcesses;
  final ControlBlock control;
  final Accord accord;
  final MemoryBook.Account account;
  final Tuning tuning;
  final HostHeap heap = ProcessMemory.self().heap();
  private final @Nullable OwnSegments[] local;
  private final MemorySegment[] heapOf;
  private final long[] stagingOf;

  /**
   * A rank that knows nobody's heap yet.
   *
   * @param here the ranks of this host, ascending
   * @param local of the ranks of this process, null for others
   * @param account has what the engines take
   * @param tuning how operations are carried out
   */
  public RankView(
      int rank,
      int[] here,
      boolean spansProcesses,
      ControlBlock control,
      Accord accord,
      @Nullable OwnSegments[] local,
      MemoryBook.Account account,
      Tuning tuning) {
    this.rank = rank;
    this.nranks = local.length;
    this.here = here;
    placeOf = new int[nranks];
    Arrays.fill(placeOf, -1);
    for (int i = 0; i < here.length; i++) {
      placeOf[here[i]] = i;
    }
    this.spansProcesses = spansProcesses;
    this.control = control;
    this.accord = accord;
    this.local = local;
    this.account = account;
    this.tuning = tuning;
    heapOf = new MemorySegment[nranks];
    stagingOf = new long[nranks];
  }

  /** Says where another rank's memory is; before the first operation. */
  public void found(int k, MemorySegment heap, long staging) {
    heapOf[k] = heap;
    stagingOf[k] = staging;
  }

  /** A rank's heap as mapped here. */
  MemorySegment heapOf(int k) {
    return heapOf[k];
  }

  /** Where in its heap a rank's staging area lies. */
  long stagingOf(int k) {
    return stagingOf[k];
  }

  /** The segments of a rank of this process, to be used directly; null for other ranks. */
  @Nullable OwnSegments local(int k) {
    return local[k];
  }
}
