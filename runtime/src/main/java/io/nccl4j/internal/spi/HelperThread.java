package io.nccl4j.internal.spi;

import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;
import org.jspecify.annotations.Nullable;

/**
 * A daemon thread of this library that others rely on: it does one round after the other, and
 * nothing that a round throws ends it. A round that failed is done again.
 *
 * <p>It allocates nothing of its own, so that it outlasts a full Java heap. What a round throws is
 * logged at ERROR, as soon as there is memory for that; of failures in a row the first, second,
 * fourth and so on. Whoever interrupts it does so in vain. No code of the program runs on it: not
 * even a handler of uncaught exceptions.
 */
public final class HelperThread {
  /** What the thread does again and again; it waits by itself. */
  @FunctionalInterface
  public interface Round {
    /**
     * Does the work once.
     *
     * @return false to end the thread
     */
    boolean run();
  }

  /** Failures in a row, other than for lack of memory, after which nothing good is to be hoped. */
  static final int HOPELESS = 100;

  /** After a round that failed, which may not have waited. */
  private static final long PAUSE_NANOS = 10_000_000;

  private static final Logger LOG = LogManager.getLogger(HelperThread.class);

  private final Thread thread;
  private final Round round;
  private final Consumer<Throwable> hopeless;

  // By the thread only.
  private int failures;
  private @Nullable Throwable latest;
  private @Nullable Throwable untold;
  private boolean gaveUp;

  /**
   * A helper that does nothing yet.
   *
   * @param name of the thread
   * @param hopeless told on the thread when no round gets through any more, or the thread ends
   *     although no round said so: fails what relies on it
   */
  public HelperThread(String name, Round round, Consumer<Throwable> hopeless) {
    this.round = round;
    this.hopeless = hopeless;
    thread = Thread.ofPlatform().daemon().name(name).unstarted(this::run);
  }

  /** Its name. */
  public String name() {
    return thread.getName();
  }

  /**
   * Starts it.
   *
   * @throws OutOfMemoryError if there can't be another thread; it may be tried again
   */
  public void start() {
    thread.start();
  }

  /** Whether it was started. */
  public boolean isStarted() {
    return thread.getState() != Thread.State.NEW;
  }

  /**
   * Throws what went wrong with one of several things, when the others are done; null is nothing.
   */
  public static void rethrow(@Nullable Throwable failure) {
    if (failure instanceof Error e) {
      throw e;
    }
    if (failure instanceof RuntimeException e) {
      throw e;
    }
  }

  /** Ends the wait that it is in, or the next one. */
  public void wake() {
    LockSupport.unpark(thread);
  }

  private void run() {
    boolean ended = false;
    try {
      while (turn()) {
        // Otherwise an interrupt would end all its waits at once, from now on.
        boolean ignored = Thread.interrupted();
      }
      ended = true;
    } finally {
      if (!ended) {
        // Nothing is known that leads here.
        LOG.error("{} has ended", name());
        hopeless.accept(new IllegalStateException(name() + " has ended"));
      }
    }
  }

  private boolean turn() {
    try {
      recover();
    } catch (Throwable e) {
      // There is no memory for it yet: the next turn tries again.
      latest = e;
    }
    try {
      boolean more = round.run();
      failures = 0;
      return more;
    } catch (Throwable e) {
      latest = e;
      failures = Math.min(failures + 1, 2 * HOPELESS);
      if (Integer.bitCount(failures) == 1) {
        untold = e;
      }
      return true;
    }
  }

  private void recover() {
    if (failures > 0) {
      LockSupport.parkNanos(this, PAUSE_NANOS);
    }
    Throwable failure = untold;
    if (failure != null) {
      LOG.error("{} failed, and goes on", name(), failure);
      untold = null;
    }
    Throwable lasting = latest;
    if (failures >= HOPELESS && !gaveUp && !(lasting instanceof OutOfMemoryError)) {
      LOG.error("{} failed {} times in a row", name(), failures);
      hopeless.accept(lasting == null ? new IllegalStateException(name()) : lasting);
      gaveUp = true;
    }
  }
}
