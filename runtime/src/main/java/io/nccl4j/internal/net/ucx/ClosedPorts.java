package io.nccl4j.internal.net.ucx;

import io.nccl4j.internal.spi.HelperThread;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.locks.LockSupport;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;

/** Looks after ports that are closed until their workers can be destroyed. */
final class ClosedPorts {
  private static final Logger LOG = LogManager.getLogger(ClosedPorts.class);
  private static final long TICK_NANOS = 1_000_000;

  private static final ClosedPorts SELF = new ClosedPorts();

  private final HelperThread thread =
      new HelperThread(
          "nccl4j-ucx",
          this::round,
          cause -> LOG.error("the workers of closed UCX ports are never destroyed", cause));

  private final List<UcxPort> all = new ArrayList<>();

  private ClosedPorts() {}

  /** Takes over a port: from now on it belongs to the daemon. */
  static void add(UcxPort port) {
    SELF.take(port);
  }

  private synchronized void take(UcxPort port) {
    all.add(port);
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
    all.removeIf(UcxPort::isDestroyed);
  }
}
