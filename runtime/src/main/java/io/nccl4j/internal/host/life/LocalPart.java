package io.nccl4j.internal.host.life;

import io.nccl4j.InternalErrorException;
import io.nccl4j.internal.host.engine.OwnSegments;
import io.nccl4j.internal.host.layout.ControlBlock;
import io.nccl4j.internal.host.layout.RankState;
import io.nccl4j.internal.host.memory.HostHeap;
import io.nccl4j.internal.host.memory.ProcessMemory;
import io.nccl4j.internal.spi.MemoryBook;
import io.nccl4j.memory.MemoryPurpose;
import java.util.HashMap;
import java.util.Map;
import java.util.UUID;
import java.util.function.BooleanSupplier;
import java.util.function.Supplier;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/**
 * The part of one communicator that lies in this process: its control block as seen from here, and
 * the local ranks, which reach each other's segments directly. Thread-safe; it lasts from the first
 * local rank's joining to the last one's closing.
 */
public final class LocalPart {
  /** The process of a rank on another host. */
  public static final int ELSEWHERE = -1;

  private static final Map<UUID, LocalPart> PARTS = new HashMap<>();

  private final ControlBlock control;
  private final @Nullable LocalRank[] ranks;
  private final @Nullable OwnSegments[] segments;
  private final int[] processOf;
  private final ProcessGroup group;
  private final UUID id;
  private final long handle;
  private final HostHeap.@Nullable Block block;
  private int open;

  /** When it is true, ranks that have not come to this communicator never will. */
  private volatile BooleanSupplier nobodyComes = () -> false;

  /**
   * A part without ranks.
   *
   * @param processOf for each rank the index of its process in {@code group}, or {@link #ELSEWHERE}
   * @param handle what the control block was published under
   * @param block the control block's memory if this process made it, otherwise null
   */
  public LocalPart(
      ControlBlock control,
      int[] processOf,
      ProcessGroup group,
      long handle,
      HostHeap.@Nullable Block block) {
    this.control = control;
    this.ranks = new LocalRank[processOf.length];
    this.segments = new OwnSegments[processOf.length];
    this.processOf = processOf;
    this.group = group;
    this.id = id(control);
    this.handle = handle;
    this.block = block;
  }

  /**
   * The part of the communicator with this control block, made by the first local rank that comes.
   * If that fails, the other ranks see that this one does not come.
   *
   * @param block the control block's memory if this process made it, otherwise null
   * @return null if all local ranks that came before have left again; this one does not come either
   */
  public static @Nullable LocalPart join(
      ControlBlock control, int rank, HostHeap.@Nullable Block block, Supplier<LocalPart> first) {
    synchronized (PARTS) {
      LocalPart part = PARTS.get(id(control));
      if (part == null && block != null && !ProcessMemory.self().controlBlocks().has(block)) {
        // They free the control block, once this rank has left as well.
        lost(control, rank);
        return null;
      }
      try {
        if (part == null) {
          part = first.get();
          PARTS.put(part.id, part);
        }
        part.open++;
        part.group.hold();
        return part;
      } catch (RuntimeException | Error e) {
        lost(control, rank);
        if (part != null) {
          part.leave();
        }
        throw e;
      }
    }
  }

  private static UUID id(ControlBlock control) {
    return new UUID(control.uuidHigh(), control.uuidLow());
  }

  public ControlBlock control() {
    return control;
  }

  public ProcessGroup group() {
    return group;
  }

  public int processOf(int rank) {
    return processOf[rank];
  }

  public int nranks() {
    return ranks.length;
  }

  /** Whether a rank is on this host. */
  public boolean isHere(int rank) {
    return processOf[rank] != ELSEWHERE;
  }

  /** The ranks on this host, ascending. */
  public int[] here() {
    return IntStream.range(0, processOf.length).filter(this::isHere).toArray();
  }

  /** Whether the process of a rank has died; false for ranks elsewhere. */
  boolean isDead(int rank) {
    return isHere(rank) && group.isDead(processOf[rank]);
  }

  /** Whether some rank on this host is in another process. */
  public boolean spansProcesses() {
    return IntStream.of(processOf).filter(p -> p != ELSEWHERE).distinct().count() > 1;
  }

  /** A rank of this process; null for a rank of another one. */
  public @Nullable LocalRank rank(int rank) {
    return ranks[rank];
  }

  /** What only ranks of this process can reach of each other; null for ranks of another one. */
  public @Nullable OwnSegments[] segments() {
    return segments;
  }

  /** Rank 0 made the control block, and has it from now on. */
  public void set(int rank, LocalRank local, MemoryBook.Account account) {
    ranks[rank] = local;
    if (block != null && rank == here()[0]) {
      block.booking().move(account, MemoryPurpose.CONTROL);
    }
  }

  /** Tells the others that a local rank which has joined, or was to, could not be made. */
  public static void lost(ControlBlock control, int rank) {
    long lost = RankState.of(RankState.ERROR, rank, 0) | RankState.LEFT;
    control.setRelease(control.state(rank), lost);
    control.advanceEpoch();
    control.setRelease(control.state(rank), lost | RankState.GONE);
  }

  /** Once {@code condition} is true, no further rank comes. */
  public void nobodyComesOnce(BooleanSupplier condition) {
    nobodyComes = condition;
  }

  /** Whether ranks that have not come never will. */
  boolean isComplete() {
    return nobodyComes.getAsBoolean();
  }

  /**
   * One rank less; the last one frees the control block, if it was made here, once no rank touches
   * it any more. The block may be gone when this returns.
   */
  public void leave() {
    synchronized (PARTS) {
      if (--open == 0) {
        if (PARTS.remove(id) != this) {
          throw new InternalErrorException("a communicator was left twice", "please report this");
        }
        if (block != null) {
          freeWhenOver(block);
        }
      }
      group.release();
    }
  }

  private void freeWhenOver(HostHeap.Block own) {
    HostHeap heap = ProcessMemory.self().heap();
    ProcessMemory.self().controlBlocks().remove(handle);
    if (group.isIn(control)) {
      heap.free(own, () -> isOver() && group.isOver());
    } else {
      // Deaths are noted in the group's own block, which must be there as long as this one is.
      group.unsettled();
      heap.whenSafe(
          this::isOver,
          () -> {
            heap.free(own);
            group.settled();
          });
    }
  }

  /** Whether each rank has touched the control block for the last time, or died. */
  private boolean isOver() {
    // Before the states: a rank that has come by then shows there.
    boolean complete = isComplete();
    for (int r = 0; r < ranks.length; r++) {
      long state = control.getAcquire(control.state(r));
      boolean absent = complete && RankState.code(state) == 0;
      if (isHere(r) && !absent && !RankState.isGone(state) && !isDead(r)) {
        return false;
      }
    }
    return true;
  }
}
