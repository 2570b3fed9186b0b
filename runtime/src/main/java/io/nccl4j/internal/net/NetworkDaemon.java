package io.nccl4j.internal.net;

import io.nccl4j.internal.spi.HelperThread;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;

/**
 * Polls the ports of this process that nobody polls, so that what peers have sent is taken from the
 * network even if no thread waits for it. One daemon thread; it starts with the first port, and
 * sleeps longer when nothing comes.
 */
public final class NetworkDaemon {
  private static final long TICK_NANOS = 1_000_000;
  private static final long IDLE_TICK_NANOS = 10_000_000;
  private static final int TICKS_TO_IDLE = 100;

  private final HelperThread thread;
  private volatile PortCell[] ports = {};

  // By the thread only.
  private int idleTicks;

  /**
   * A daemon without ports.
   *
   * @param hopeless told when it can't go on: fails what relies on it
   */
  public NetworkDaemon(Consumer<Throwable> hopeless) {
    thread = new HelperThread("nccl4j-net", this::tick, hopeless);
  }

  /** Looks after a port from now on. */
  public synchronized void add(PortCell port) {
    PortCell[] longer = Arrays.copyOf(ports, ports.length + 1);
    longer[ports.length] = port;
    ports = longer;
    if (!thread.isStarted()) {
      thread.start();
    }
  }

  /**
   * No longer. A round that has begun may still poll it: the caller owns it before it closes it.
   */
  public synchronized void remove(PortCell port) {
    List<PortCell> others = new ArrayList<>(Arrays.asList(ports));
    others.remove(port);
    ports = others.toArray(new PortCell[0]);
  }

  private boolean tick() {
    LockSupport.parkNanos(idleTicks < TICKS_TO_IDLE ? TICK_NANOS : IDLE_TICK_NANOS);
    boolean moved = false;
    Throwable failure = null;
    for (PortCell port : ports) {
      try {
        moved |= port.pollIfForgotten();
      } catch (RuntimeException | Error e) {
        // The others are polled all the same.
        failure = e;
      }
    }
    idleTicks = moved ? 0 : Math.min(idleTicks + 1, TICKS_TO_IDLE);
    HelperThread.rethrow(failure);
    return true;
  }
}
