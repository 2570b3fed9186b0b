package io.nccl4j.cuda;

import io.nccl4j.NcclException;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.locks.LockSupport;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;

/**
 * Completes futures of events: one thread that asks CUDA as long as there are futures. A callback
 * from CUDA would come on a thread that must not call CUDA again.
 */
final class EventPoller {
  private static final class Waiter {
    final CudaEvent.Place place;
    final CompletableFuture<Void> future = new CompletableFuture<>();
    final StreamWaits.Patience patience;

    Waiter(CudaEvent.Place place) {
      this.place = place;
      this.patience = place.stream().waits().newPatience();
    }
  }

  private static final Logger LOG = LogManager.getLogger(EventPoller.class);
  private static final long PAUSE_NANOS = 50_000;
  private static final List<Waiter> WAITERS = new CopyOnWriteArrayList<>();
  private static final Thread THREAD =
      Thread.ofPlatform().daemon().name("nccl4j-cuda-events").unstarted(EventPoller::run);

  static {
    THREAD.start();
  }

  private EventPoller() {}

  static CompletableFuture<Void> futureOf(CudaEvent.Place place) {
    Waiter waiter = new Waiter(place);
    WAITERS.add(waiter);
    LockSupport.unpark(THREAD);
    return waiter.future;
  }

  private static void run() {
    while (true) {
      if (WAITERS.isEmpty()) {
        LockSupport.park(WAITERS);
      } else {
        for (Waiter waiter : WAITERS) {
          if (isOver(waiter)) {
            WAITERS.remove(waiter);
          }
        }
        LockSupport.parkNanos(PAUSE_NANOS);
        if (Thread.interrupted()) {
          LOG.debug("nobody has a reason to interrupt this thread, which would sleep no longer");
        }
      }
    }
  }

  private static boolean isOver(Waiter waiter) {
    NcclException failure;
    try {
      if (!waiter.place.isReached()) {
        waiter.place.stream().queue().look();
        waiter.patience.checkDeadline();
        return false;
      }
      failure = waiter.place.failure();
    } catch (NcclException e) {
      failure = e;
    }
    try {
      waiter.place.release();
    } catch (NcclException e) {
      failure = failure == null ? e : failure;
    }
    // Not on this thread: what hangs on the future may take long.
    NcclException why = failure;
    if (why == null) {
      waiter.future.completeAsync(() -> null);
    } else {
      CompletableFuture<Void> unused =
          CompletableFuture.runAsync(() -> waiter.future.completeExceptionally(why));
    }
    return true;
  }
}
