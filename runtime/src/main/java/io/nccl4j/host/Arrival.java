package io.nccl4j.host;

import io.nccl4j.DeadlineException;
import io.nccl4j.InterruptedWaitException;
import io.nccl4j.PeerFailedException;
import java.util.concurrent.locks.LockSupport;

/** Waits until all ranks of a communicator have attached to its control block. */
final class Arrival {
  private static final long SLEEP_NANOS = 20_000;
  private static final int SLEEPS_PER_LOOK = 500;

  private Arrival() {}

  static void await(
      HostCommunicator self, ControlBlock control, LocalPart part, long deadlineNanos) {
    int sleeps = 0;
    for (int k = 0; k < self.nranks(); k++) {
      while (RankState.code(control.getAcquire(control.state(k))) == 0) {
        if (System.nanoTime() - deadlineNanos > 0) {
          throw new DeadlineException(
              "communicator "
                  + self.name()
                  + ": "
                  + missing(self, control)
                  + " did not attach before the init timeout",
              "see whether those processes hang; init-timeout sets the deadline");
        }
        if (++sleeps % SLEEPS_PER_LOOK == 0 && isGone(pid(part, k))) {
          throw new PeerFailedException(
              k,
              "communicator "
                  + self.name()
                  + ": rank "
                  + k
                  + " died while it joined (process "
                  + pid(part, k)
                  + ")",
              "look at its output");
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

  /**
   * A process of another PID namespace has no number here: its death shows by the deadline only.
   */
  private static boolean isGone(long pid) {
    return pid != 0 && ProcessHandle.of(pid).isEmpty();
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
