package io.nccl4j.internal.cuda;

import io.nccl4j.InternalErrorException;
import io.nccl4j.NcclException;
import io.nccl4j.internal.spi.HelperThread;
import io.nccl4j.internal.spi.Promise;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;

/**
 * Completes futures of events: one thread that asks CUDA as long as there are futures. A callback
 * from CUDA would come on a thread that must not call CUDA again.
 */
final class EventPoller {
  private static final class Waiter extends Promise {
    final CudaEvent.Place place;
    final StreamWaits.Patience patience;
    @Nullable Waiter next;
    boolean released;
    boolean over;

    Waiter(CudaEvent.Place place) {
      this.place = place;
      this.patience = place.waits().newPatience();
    }
  }

  private static final long PAUSE_NANOS = 50_000;

  /** Between two looks at futures that the program's pool has not completed yet. */
  private static final long DELIVERY_NANOS = 5_000_000;

  private static final HelperThread THREAD =
      new HelperThread("nccl4j-cuda-events", EventPoller::round, EventPoller::giveUp);

  /** A list, so that looking at it allocates nothing; changed under the lock of the class. */
  private static volatile @Nullable Waiter waiters;

  private EventPoller() {}

  static CompletableFuture<Void> futureOf(CudaEvent.Place place) {
    Waiter waiter = new Waiter(place);
    synchronized (EventPoller.class) {
      if (!THREAD.isStarted()) {
        THREAD.start();
      }
      waiter.next = waiters;
      waiters = waiter;
    }
    THREAD.wake();
    return waiter.future();
  }

  private static boolean round() {
    Throwable trouble = null;
    for (Waiter waiter = waiters; waiter != null; waiter = waiter.next) {
      try {
        look(waiter);
      } catch (RuntimeException | Error e) {
        // It is looked at again; and the others are looked at all the same.
        trouble = e;
      }
    }
    removeOver();
    HelperThread.rethrow(trouble);
    boolean delivered = Promise.deliverAll();
    if (waiters != null) {
      LockSupport.parkNanos(PAUSE_NANOS);
    } else if (!delivered) {
      LockSupport.parkNanos(DELIVERY_NANOS);
    } else {
      LockSupport.park(EventPoller.class);
    }
    return true;
  }

  private static synchronized void removeOver() {
    Waiter before = null;
    for (Waiter waiter = waiters; waiter != null; waiter = waiter.next) {
      if (!waiter.over) {
        before = waiter;
      } else if (before == null) {
        waiters = waiter.next;
      } else {
        before.next = waiter.next;
      }
    }
  }

  private static void look(Waiter waiter) {
    NcclException failure;
    try {
      if (!waiter.place.isReached()) {
        waiter.place.waits().queue().look();
        waiter.patience.checkDeadline();
        return;
      }
      failure = waiter.place.failure();
    } catch (NcclException e) {
      failure = e;
    }
    try {
      if (!waiter.released) {
        waiter.released = true;
        waiter.place.release();
      }
    } catch (NcclException e) {
      failure = failure == null ? e : failure;
    }
    waiter.over = true;
    waiter.settle(failure);
  }

  /** A future that nobody completes would be an endless wait. */
  private static void giveUp(Throwable cause) {
    NcclException failure =
        new InternalErrorException(
                "events can no longer be queried: " + cause, "restart the process")
            .causedBy(cause);
    for (Waiter waiter = waiters; waiter != null; waiter = waiter.next) {
      if (!waiter.over) {
        waiter.over = true;
        waiter.settle(failure);
      }
    }
    removeOver();
  }
}
