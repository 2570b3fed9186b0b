package io.nccl4j.internal.net.ucx;

import io.nccl4j.bindings.Ucp;
import io.nccl4j.bindings.UcpWorker;
import io.nccl4j.internal.spi.HelperThread;
import java.lang.foreign.Arena;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.locks.LockSupport;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;

/**
 * Destroys the workers of closed ports when nothing moves in them any more.
 *
 * <p>UCX connects two workers by messages of its own. One that is destroyed while such a message
 * waits for its connection ends the process by a failed assertion (1.13; newer ones do not). How
 * far they are, it does not say, so they get a moment without events.
 */
final class ClosedWorkers {
  private static final Logger LOG = LogManager.getLogger(ClosedWorkers.class);
  private static final long TICK_NANOS = 1_000_000;
  private static final long QUIET_NANOS = 20_000_000;
  private static final long MOST_NANOS = 2_000_000_000;

  private static final ClosedWorkers SELF = new ClosedWorkers();

  /** A worker, and all that lives as long as it does. */
  private static final class Closed {
    private final UcpWorker worker;
    private final Ucp context;
    private final Arena arena;
    private final long since = System.nanoTime();
    private long quietSince = since;

    Closed(UcpWorker worker, Ucp context, Arena arena) {
      this.worker = worker;
      this.context = context;
      this.arena = arena;
    }

    boolean isOver() {
      long now = System.nanoTime();
      if (worker.progress() != 0) {
        quietSince = now;
      }
      if (now - quietSince < QUIET_NANOS && now - since < MOST_NANOS) {
        return false;
      }
      worker.close();
      context.close();
      arena.close();
      return true;
    }
  }

  private final HelperThread thread =
      new HelperThread(
          "nccl4j-ucx",
          this::round,
          cause -> LOG.error("workers of closed UCX ports are never destroyed", cause));

  private final List<Closed> all = new ArrayList<>();

  private ClosedWorkers() {}

  /** Takes over a worker whose endpoints are closed, its context and memory. */
  static void add(UcpWorker worker, Ucp context, Arena arena) {
    SELF.take(new Closed(worker, context, arena));
  }

  private synchronized void take(Closed closed) {
    all.add(closed);
    if (thread.isStarted()) {
      thread.wake();
    } else {
      thread.start();
    }
  }

  private boolean round() {
    if (isEmpty()) {
      LockSupport.park(this);
    } else {
      LockSupport.parkNanos(this, TICK_NANOS);
      end();
    }
    return true;
  }

  private synchronized boolean isEmpty() {
    return all.isEmpty();
  }

  private synchronized void end() {
    all.removeIf(Closed::isOver);
  }
}
