package io.nccl4j.internal.cuda.nccl;

import io.nccl4j.AbortedException;
import io.nccl4j.MismatchException;
import io.nccl4j.NcclException;
import io.nccl4j.PeerFailedException;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.VarHandle;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * The first failure of a communicator whose ranks are in several processes, in memory that they
 * share. Who fails first writes it, all others are told. Thread-safe.
 */
final class FailureNote {
  static final int BYTES = 1024;

  // What is in the state: nobody has failed, somebody is writing, or the kind of the failure.
  private static final long NONE = 0;
  private static final long WRITING = 1;
  private static final long ABORTED = 2;
  private static final long MISMATCH = 3;
  private static final long FAILED = 4;

  // Longs; CULPRITS is the number of ranks from FIRST_CULPRIT on. The text comes last.
  private static final int STATE = 0;
  private static final int PLACE = 8;
  private static final int RANK = 16;
  private static final int CULPRITS = 24;
  private static final int FIRST_CULPRIT = 32;
  private static final int MOST_CULPRITS = 16;
  private static final int TEXT = FIRST_CULPRIT + MOST_CULPRITS * Long.BYTES;
  private static final int TEXT_BYTES = BYTES - TEXT;

  private static final VarHandle LONG = ValueLayout.JAVA_LONG.varHandle();

  private final MemorySegment memory;
  private final int place;

  /**
   * The note of a communicator.
   *
   * @param memory {@link #BYTES}, at first all zero
   * @param place of this process
   */
  FailureNote(MemorySegment memory, int place) {
    this.memory = memory;
    this.place = place;
  }

  /** Writes why a rank of this process failed, unless there is a failure already. */
  void write(int rank, NcclException cause) {
    if (cause instanceof PeerFailedException || !LONG.compareAndSet(memory, STATE, NONE, WRITING)) {
      // A peer's failure is noted by its own process, and its death is seen by everybody.
      return;
    }
    set(PLACE, place);
    set(RANK, rank);
    List<Integer> culprits = cause.failedRanks().stream().limit(MOST_CULPRITS).toList();
    set(CULPRITS, culprits.size());
    for (int i = 0; i < culprits.size(); i++) {
      set(FIRST_CULPRIT + i * Long.BYTES, culprits.get(i));
    }
    SharedText.write(memory, TEXT, TEXT_BYTES, cause.problem());
    long kind =
        switch (cause) {
          case AbortedException ignored -> ABORTED;
          case MismatchException ignored -> MISMATCH;
          default -> FAILED;
        };
    LONG.setRelease(memory, STATE, kind);
  }

  /** What a rank here is told of the failure of another process; null if there is none. */
  @Nullable NcclException read(String communicator) {
    long state = (long) LONG.getAcquire(memory, STATE);
    if (state <= WRITING || get(PLACE) == place) {
      return null;
    }
    String problem = SharedText.read(memory, TEXT, TEXT_BYTES);
    List<Integer> culprits = culprits();
    if (state == ABORTED) {
      return new AbortedException(problem, "create a new one", culprits);
    }
    return state == MISMATCH
        ? new MismatchException(problem, "let all ranks make the same calls")
        : relayed((int) get(RANK), communicator, problem, culprits);
  }

  /** What others are told when a rank has failed by itself. */
  static PeerFailedException relayed(
      int rank, String communicator, String problem, List<Integer> culprits) {
    return new PeerFailedException(
        culprits.isEmpty() ? List.of(rank) : culprits,
        "rank "
            + rank
            + " failed: "
            + problem
            + " (rank "
            + rank
            + " of communicator "
            + communicator
            + ")",
        "check that rank; create a new communicator");
  }

  private List<Integer> culprits() {
    List<Integer> culprits = new ArrayList<>();
    for (int i = 0; i < Math.clamp(get(CULPRITS), 0, MOST_CULPRITS); i++) {
      culprits.add((int) get(FIRST_CULPRIT + i * Long.BYTES));
    }
    return culprits;
  }

  private long get(int field) {
    return memory.get(ValueLayout.JAVA_LONG, field);
  }

  private void set(int field, long value) {
    memory.set(ValueLayout.JAVA_LONG, field, value);
  }
}
