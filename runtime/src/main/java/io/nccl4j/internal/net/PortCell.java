package io.nccl4j.internal.net;

import io.nccl4j.internal.net.Port.Landing;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * A port and its owner. A thread that waits for something from the network takes the port, polls it
 * and gives it back; {@link NetworkDaemon} does so for ports that no thread has polled lately.
 */
public final class PortCell {
  private static final int FREE = 0;
  private static final int OWNED = 1;

  private final Port port;
  private final Landing landing;
  private final Runnable last;
  private final AtomicInteger owner = new AtomicInteger();

  /** Whether it was polled since the daemon last looked. */
  private volatile boolean polled;

  /** Whether something may not have left; written by the owner. */
  private boolean isKept;

  /**
   * A port that nobody owns.
   *
   * @param landing takes small messages, on the thread that polls
   */
  public PortCell(Port port, Landing landing) {
    this(port, landing, () -> {});
  }

  /**
   * A port that nobody owns.
   *
   * @param landing takes small messages, on the thread that polls
   * @param last what each owner does before it ends to be that
   */
  public PortCell(Port port, Landing landing, Runnable last) {
    this.port = port;
    this.landing = landing;
    this.last = last;
  }

  /** Makes the caller the owner if there is none. */
  public boolean tryOwn() {
    return owner.getPlain() == FREE && owner.compareAndSet(FREE, OWNED);
  }

  /** Gives it back, after what was sent has left. An owner that closes the port keeps it. */
  public void disown() {
    isKept = false;
    try {
      last.run();
      port.flush();
    } finally {
      owner.setRelease(FREE);
    }
  }

  /** Gives it back; what was sent may leave later, with the next poll or {@link #flush}. */
  public void disownUnflushed() {
    isKept = true;
    try {
      last.run();
    } finally {
      owner.setRelease(FREE);
    }
  }

  /** Lets leave what the caller has kept back, unless there is another owner, who does so. */
  public void flush() {
    if (isKept && tryOwn()) {
      disown();
    }
  }

  /** The port, for its owner. */
  public Port port() {
    return port;
  }

  /** Moves what can be moved, by the owner; see {@link Port#poll(Landing)}. */
  public int poll() {
    return poll(Port.ANY);
  }

  /** The same for a caller that waits for one peer; see {@link Port#poll(Landing, int)}. */
  public int poll(int awaited) {
    if (!polled) {
      polled = true;
    }
    return port.poll(landing, awaited);
  }

  /** Whether it was polled since the daemon last looked, at most some milliseconds ago. */
  public boolean wasPolled() {
    return polled;
  }

  /** For the daemon: polls if nobody has since it asked last. */
  boolean pollIfForgotten() {
    boolean forgotten = !polled;
    polled = false;
    if (!forgotten || !tryOwn()) {
      return false;
    }
    try {
      return port.poll(landing) > 0;
    } finally {
      disown();
    }
  }
}
