package io.nccl4j.internal.host.join;

import io.nccl4j.DeadlineException;
import io.nccl4j.InterruptedWaitException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.PeerFailedException;
import io.nccl4j.internal.bootstrap.Member;
import io.nccl4j.internal.host.engine.RankView;
import io.nccl4j.internal.host.engine.Tuning;
import io.nccl4j.internal.host.layout.ControlBlock;
import io.nccl4j.internal.host.layout.Layout;
import io.nccl4j.internal.host.layout.RankState;
import io.nccl4j.internal.host.life.LocalPart;
import java.lang.foreign.MemorySegment;
import java.util.List;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

/**
 * Waits until all ranks of a communicator have attached to its control block, and checks what they
 * say of themselves there.
 */
public final class Arrival {
  private static final long SLEEP_NANOS = 20_000;
  private static final int SLEEPS_PER_LOOK = 500;

  private Arrival() {}

  /**
   * Waits.
   *
   * @param view learns where the others' memory is
   * @param tuning how this rank carries out operations
   * @throws DeadlineException if they are not in time
   * @throws PeerFailedException if one cannot come any more, or says of itself what cannot be
   * @throws InvalidUsageException if the settings of some force another way
   */
  public static void await(Place<?> place, RankView view, Tuning tuning) {
    try {
      awaitAll(place);
    } finally {
      // Whoever found it first has left by now: the same is thrown here, not that it has.
      requireSameTuning(place, tuning.word());
    }
    LocalPart part = place.part();
    boolean staged = part.spansProcesses() || tuning.isStaged();
    for (int k : part.here()) {
      MemorySegment heap = part.group().heap(part.processOf(k));
      view.found(k, heap, staged ? stagingAt(part.control(), k, heap) : 0);
      if (!part.group().isWatchable(part.processOf(k))) {
        throw ControlBlock.impossible(k, "has put no mutex where its death would show");
      }
    }
    part.group().watch();
  }

  private static void awaitAll(Place<?> place) {
    LocalPart part = place.part();
    long deadline = place.deadline();
    int sleeps = 0;
    for (int k : part.here()) {
      while (!hasCome(place, k)) {
        if (System.nanoTime() - deadline > 0) {
          throw new DeadlineException(
              "communicator "
                  + place.name()
                  + ": "
                  + missing(place)
                  + " did not attach before the init timeout",
              "check whether those processes hang; init-timeout sets the deadline",
              missingRanks(place));
        }
        if (++sleeps % SLEEPS_PER_LOOK == 0) {
          NcclException never = isGone(part, k) ? died(place, k) : place.whyNever().apply(k);
          // It may have come just before.
          if (never != null && !hasCome(place, k)) {
            throw never;
          }
        }
        if (Thread.currentThread().isInterrupted()) {
          throw new InterruptedWaitException(
              "communicator "
                  + place.name()
                  + ": rank "
                  + place.rank()
                  + " was interrupted while it joined, waiting for "
                  + missing(place),
              "");
        }
        LockSupport.parkNanos(SLEEP_NANOS);
      }
    }
  }

  private static PeerFailedException died(Place<?> place, int k) {
    return new PeerFailedException(
        k,
        "communicator "
            + place.name()
            + ": rank "
            + k
            + " died while it joined (process "
            + pid(place.part(), k)
            + ")",
        "check its output");
  }

  private static boolean hasCome(Place<?> place, int k) {
    ControlBlock control = place.part().control();
    long state = control.getAcquire(control.state(k));
    if (RankState.code(state) == RankState.ERROR && RankState.hasLeft(state)) {
      throw failed(place.name(), k);
    }
    return RankState.code(state) != 0;
  }

  /** A rank has come and left again. */
  static PeerFailedException failed(String name, int k) {
    return new PeerFailedException(
        k,
        "communicator " + name + ": rank " + k + " failed while it joined",
        "see that rank's message");
  }

  /**
   * Whether its death was noticed, or shows by its process id. A process of another PID namespace
   * has no number here.
   */
  private static boolean isGone(LocalPart part, int rank) {
    long pid = pid(part, rank);
    return part.group().isDead(part.processOf(rank)) || pid != 0 && Member.hasEnded(pid);
  }

  private static long pid(LocalPart part, int rank) {
    return part.group().pid(part.processOf(rank));
  }

  private static String missing(Place<?> place) {
    return missingRanks(place).stream().map(k -> "rank " + k).collect(Collectors.joining(", "));
  }

  private static List<Integer> missingRanks(Place<?> place) {
    ControlBlock control = place.part().control();
    return IntStream.of(place.part().here())
        .filter(k -> RankState.code(control.getAcquire(control.state(k))) == 0)
        .boxed()
        .toList();
  }

  // ---- what they say of themselves

  /** All ranks carry out operations in the same way. */
  private static void requireSameTuning(Place<?> place, long mine) {
    ControlBlock control = place.part().control();
    for (int k : place.part().here()) {
      // Acquired: nothing is said of a rank that has not come.
      boolean came = RankState.code(control.getAcquire(control.state(k))) != 0;
      long theirs = came ? control.getPlain(control.tuning(k)) : mine;
      // A rank that could not be made has said nothing.
      if (theirs != mine && theirs != 0) {
        throw new InvalidUsageException(
            "communicator "
                + place.name()
                + ": rank "
                + place.rank()
                + " has "
                + Tuning.describe(mine)
                + ", rank "
                + k
                + " has "
                + Tuning.describe(theirs),
            "give all ranks the same (NCCL4J_ALGO, NCCL4J_PROTO, --algo, --proto)");
      }
    }
  }

  private static long stagingAt(ControlBlock control, int k, MemorySegment heap) {
    long offset = control.getPlain(control.staging(k));
    if (offset < 0 || offset > heap.byteSize() - Layout.STAGING_BYTES) {
      throw ControlBlock.impossible(
          k,
          "says that its staging area lies at byte "
              + offset
              + " of its heap of "
              + heap.byteSize()
              + " B");
    }
    return offset;
  }
}
