package io.nccl4j.internal.observe;

import io.nccl4j.OperationCounters;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.ArrayList;
import java.util.List;
import java.util.function.IntFunction;

/**
 * How much of each operation a rank has submitted, and how long it took. Calls and bytes are
 * written by one thread at a time, the one that submits; times by whoever finds that an operation
 * has ended. Counting allocates nothing; any thread may read.
 */
public final class OperationTally {
  private static final VarHandle LONG = MethodHandles.arrayElementVarHandle(long[].class);

  // The fields of an operation.
  private static final int CALLS = 0;
  private static final int BYTES = 1;
  private static final int TIMED = 0;
  private static final int TIME = 1;
  private static final int MOST = 2;
  private static final int WAIT = 3;

  /** Elements on each side that belong to nobody: the submitter's cache lines are its own. */
  private static final int APART = 16;

  private final int kinds;
  private final long[] submitted;
  private final long[] timed;

  /** Nothing was submitted yet of any of {@code kinds} operations. */
  public OperationTally(int kinds) {
    this.kinds = kinds;
    submitted = new long[2 * kinds + 2 * APART];
    timed = new long[4 * kinds];
  }

  /** Counts calls; by the submitting thread. */
  public void count(int kind, long calls, long bytes) {
    int at = APART + 2 * kind;
    LONG.setOpaque(submitted, at + CALLS, submitted[at + CALLS] + calls);
    LONG.setOpaque(submitted, at + BYTES, submitted[at + BYTES] + bytes);
  }

  /** Counts a call that has ended. Any thread. */
  void time(int kind, long nanos, long waitNanos) {
    int at = 4 * kind;
    long ignored = (long) LONG.getAndAdd(timed, at + TIMED, 1L);
    ignored = (long) LONG.getAndAdd(timed, at + TIME, nanos);
    ignored = (long) LONG.getAndAdd(timed, at + WAIT, Math.max(waitNanos, 0));
    long most = (long) LONG.getVolatile(timed, at + MOST);
    while (nanos > most && !LONG.compareAndSet(timed, at + MOST, most, nanos)) {
      most = (long) LONG.getVolatile(timed, at + MOST);
    }
  }

  /**
   * What was counted.
   *
   * @param label names an operation
   */
  public List<OperationCounters> counters(IntFunction<String> label) {
    List<OperationCounters> all = new ArrayList<>();
    for (int kind = 0; kind < kinds; kind++) {
      int at = APART + 2 * kind;
      all.add(
          new OperationCounters(
              label.apply(kind),
              (long) LONG.getOpaque(submitted, at + CALLS),
              (long) LONG.getOpaque(submitted, at + BYTES),
              time(kind, TIMED),
              time(kind, TIME),
              time(kind, MOST),
              time(kind, WAIT)));
    }
    return all;
  }

  private long time(int kind, int field) {
    return (long) LONG.getVolatile(timed, 4 * kind + field);
  }
}
