package io.nccl4j.internal.host;

import io.nccl4j.DeadlineException;
import io.nccl4j.InterruptedWaitException;
import io.nccl4j.NcclException;
import io.nccl4j.PeerFailedException;
import io.nccl4j.internal.bootstrap.Member;
import io.nccl4j.internal.host.layout.ControlBlock;
import io.nccl4j.internal.host.layout.RankState;
import java.util.concurrent.locks.LockSupport;
import java.util.function.IntFunction;
import org.jspecify.annotations.Nullable;

/** Waits until all ranks of a communicator have attached to its control block. */
final class Arrival {
  private static final long SLEEP_NANOS = 20_000;
  private static final int SLEEPS_PER_LOOK = 500;

  private Arrival() {}

  /**
   * Waits.
   *
   * @param whyNever says why a rank that has not come will not come any more; null if it may
   */
  static void await(
      HostCommunicator self,
      ControlBlock control,
      LocalPart part,
      long deadlineNanos,
      IntFunction<@Nullable NcclException> whyNever) {
    int sleeps = 0;
    for (int k = 0; k < self.nranks(); k++) {
      while (!hasCome(self, control, k)) {
        if (System.nanoTime() - deadlineNanos > 0) {
          throw new DeadlineException(
              "communicator "
                  + self.name()
                  + ": "
                  + missing(self, control)
                  + " did not attach before the init timeout",
              "check whether those processes hang; init-timeout sets the deadline");
        }
        if (++sleeps % SLEEPS_PER_LOOK == 0) {
          NcclException never = isGone(part, k) ? died(self, part, k) : whyNever.apply(k);
          // It may have come just before.
          if (never != null && !hasCome(self, control, k)) {
            throw never;
          }
        }
        if (Thread.currentThread().isInterrupted()) {
          throw new InterruptedWaitException(
              "communicator "
                  + self.name()
                  + ": rank "
                  + self.rank()
                  + " was interrupted while it joined, waiting for "
                  + missing(self, control),
              "");
        }
        LockSupport.parkNanos(SLEEP_NANOS);
      }
    }
  }

  private static PeerFailedException died(HostCommunicator self, LocalPart part, int k) {
    return new PeerFailedException(
        k,
        "communicator "
            + self.name()
            + ": rank "
            + k
            + " died while it joined (process "
            + pid(part, k)
            + ")",
        "check its output");
  }

  private static boolean hasCome(HostCommunicator self, ControlBlock control, int k) {
    long state = control.getAcquire(control.state(k));
    if (RankState.code(state) == RankState.ERROR && RankState.hasLeft(state)) {
      throw failed(self.name(), k);
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

  private static String missing(HostCommunicator self, ControlBlock control) {
    StringBuilder text = new StringBuilder();
    for (int k = 0; k < self.nranks(); k++) {
      if (RankState.code(control.getAcquire(control.state(k))) == 0) {
        text.append(text.isEmpty() ? "rank " : ", rank ").append(k);
      }
    }
    return text.toString();
  }
}
