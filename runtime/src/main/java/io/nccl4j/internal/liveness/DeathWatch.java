package io.nccl4j.internal.liveness;

import io.nccl4j.InvalidUsageException;
import io.nccl4j.SystemErrorException;
import io.nccl4j.bindings.Errno;
import io.nccl4j.bindings.RobustMutex;
import io.nccl4j.internal.spi.HelperThread;
import java.lang.foreign.MemorySegment;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;
import java.util.function.IntConsumer;
import java.util.function.IntPredicate;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;

/**
 * Notices the death of a peer process within milliseconds, however large its heap is.
 *
 * <p>Each process of a group holds one robust process-shared mutex in memory that they share, from
 * {@link #hold} until it dies or closes. The kernel releases the mutexes of a dying process before
 * it frees the process's memory. The mutexes protect nothing: they are a signal, which only their
 * owner ever takes, and which everybody else reads.
 *
 * <p>So every process watches every other by one load, and needs nobody for that: whoever finds
 * that a peer does not hold its mutex knows that the peer has died, unless it has left in good
 * order. Many may find it, and each reports it. A stopped or busy process keeps its mutex and is
 * not reported; one that writes a core file is reported when the kernel is done with that.
 *
 * <p>Each process looks every 5 ms, with more than 4 processes less often, down to every 20 ms: of
 * that many one will look soon. When all others are gone it looks no more.
 *
 * <p>Threads: one daemon thread per object holds the mutex, looks and reports; the methods may be
 * called by any thread. As long as this process lives that thread must not end, for the others
 * would take the process for dead: after {@link #hold} it allocates nothing but for a message.
 * Memory: the mutexes must stay mapped until {@link #hasEnded}.
 */
public final class DeathWatch {
  /** Bytes of one mutex; its address must be a multiple of 8. */
  public static final int MUTEX_BYTES = 64;

  private static final Logger LOG = LogManager.getLogger(DeathWatch.class);

  private static final long MIN_PERIOD_NANOS = TimeUnit.MILLISECONDS.toNanos(5);
  private static final long MAX_PERIOD_NANOS = TimeUnit.MILLISECONDS.toNanos(20);

  /** The period grows by this with each process, so that so many do not look more often in all. */
  private static final long PERIOD_NANOS_PER_PROCESS = 1_250_000;

  /** Longest wait for the thread to hold the own mutex. */
  private static final long HOLD_SECONDS = 10;

  private final MemorySegment[] mutexes;
  private final int self;
  private final IntPredicate left;
  private final IntConsumer dead;
  private final long periodNanos;
  private final CompletableFuture<Void> held = new CompletableFuture<>();
  private final HelperThread thread;

  private volatile boolean watching;
  private volatile boolean closing;
  private volatile boolean ended;

  /** Written before {@link #hold} returns. */
  private long word;

  // By the watch thread only.
  private final boolean[] gone;
  private boolean allGone;

  /**
   * A watch that does nothing yet. All callbacks are called on the watch thread, must allocate
   * nothing, and are called again after they have thrown something.
   *
   * @param name of the thread
   * @param mutexes one per process, formatted; the index is the process index
   * @param self index of this process
   * @param left tells whether a process has left in good order. Every process that calls {@link
   *     #close} must have made this true for itself before, for all to see
   * @param dead told about each dead process; not after {@link #close}
   * @param broken told when the watch cannot watch any more; may allocate
   */
  public DeathWatch(
      String name,
      MemorySegment[] mutexes,
      int self,
      IntPredicate left,
      IntConsumer dead,
      Consumer<Throwable> broken) {
    this.mutexes = mutexes.clone();
    this.self = self;
    this.left = left;
    this.dead = dead;
    periodNanos =
        Math.clamp(mutexes.length * PERIOD_NANOS_PER_PROCESS, MIN_PERIOD_NANOS, MAX_PERIOD_NANOS);
    gone = new boolean[mutexes.length];
    gone[self] = true;
    thread = new HelperThread(name, this::round, broken);
  }

  /**
   * Initialises a mutex. Done once for each, by the process that is to hold it.
   *
   * @param mutex {@value #MUTEX_BYTES} bytes of shared memory
   */
  public static void format(MemorySegment mutex) {
    RobustMutex.init(mutex);
  }

  /** Whether a mutex was formatted: what anything else says of its holder is not to be believed. */
  public static boolean isFormatted(MemorySegment mutex) {
    return RobustMutex.isOne(mutex);
  }

  /**
   * Starts the thread and waits until it holds this process's mutex, so that others may watch it.
   * Called once, before {@link #watch}.
   *
   * @throws SystemErrorException if the mutex cannot be had; the thread has ended, or does so soon
   * @throws InvalidUsageException if this watch was started or closed before
   */
  public void hold() {
    synchronized (this) {
      if (closing || thread.isStarted()) {
        throw new InvalidUsageException(thread.name() + " was started or closed before", "");
      }
      thread.start();
    }
    try {
      awaitHeld();
    } catch (ExecutionException e) {
      Throwable cause = Objects.requireNonNullElse(e.getCause(), e);
      throw notHeld("cannot hold its death signal: " + cause.getMessage(), cause);
    } catch (TimeoutException e) {
      throw notHeld("does not hold its death signal after " + HOLD_SECONDS + " s", e);
    }
  }

  /**
   * An interrupt is for the wait for other processes, which follows: this one depends on nobody.
   */
  private void awaitHeld() throws ExecutionException, TimeoutException {
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(HOLD_SECONDS);
    boolean interrupted = false;
    try {
      while (true) {
        try {
          held.get(end - System.nanoTime(), TimeUnit.NANOSECONDS);
          return;
        } catch (InterruptedException e) {
          interrupted = true;
        }
      }
    } finally {
      if (interrupted) {
        Thread.currentThread().interrupt();
      }
    }
  }

  private SystemErrorException notHeld(String what, Throwable cause) {
    close();
    SystemErrorException failure = new SystemErrorException(thread.name() + " " + what, "");
    failure.initCause(cause);
    return failure;
  }

  /** Whether a process holds its mutex now; any thread may ask, after {@link #hold}. */
  public boolean isHeld(int process) {
    return RobustMutex.isHeld(mutexes[process], word);
  }

  /**
   * Starts watching. Every process of the group must have returned from {@link #hold} before, or it
   * is taken for dead.
   */
  public void watch() {
    watching = true;
    thread.wake();
  }

  /**
   * Asks the thread to release this process's mutex and to end. This process must count as left
   * before. May be called repeatedly, at any time.
   */
  public synchronized void close() {
    if (!closing) {
      closing = true;
      if (thread.isStarted()) {
        thread.wake();
      } else {
        ended = true;
      }
    }
  }

  /** Whether the mutexes are no longer touched; some time after {@link #close}. */
  public boolean hasEnded() {
    return ended;
  }

  // ---- the watch thread

  private boolean round() {
    if (!held.isDone()) {
      return holdOwn();
    }
    if (closing) {
      int error = RobustMutex.unlock(mutexes[self]);
      ended = true;
      if (error != 0) {
        LOG.error("{}: releasing its death signal: {}", thread.name(), Errno.name(error));
      }
      return false;
    }
    if (!watching || allGone) {
      LockSupport.park(this);
    } else {
      LockSupport.parkNanos(this, periodNanos);
      look();
    }
    return true;
  }

  private boolean holdOwn() {
    try {
      word = RobustMutex.wordOffset();
      int error = RobustMutex.tryLock(mutexes[self]);
      if (error != 0) {
        throw new SystemErrorException(
            "locking it failed with " + Errno.name(error), "all processes need the same C library");
      }
      // What is called for the first time may allocate: not later, when there may be no memory.
      boolean ignored = RobustMutex.isHeld(mutexes[self], word) && left.test(self);
      held.complete(null);
      return true;
    } catch (RuntimeException | Error e) {
      held.completeExceptionally(e);
      ended = true;
      return false;
    }
  }

  private void look() {
    boolean none = true;
    Throwable failure = null;
    for (int i = 1; i < mutexes.length; i++) {
      // Everybody starts with another one.
      int peer = (self + i) % mutexes.length;
      if (!gone[peer]) {
        try {
          if (!isHeld(peer)) {
            letGo(peer);
          }
        } catch (RuntimeException | Error e) {
          failure = e;
        }
        none &= gone[peer];
      }
    }
    allGone = none;
    HelperThread.rethrow(failure);
  }

  /** The peer does not hold its mutex any more. */
  private void letGo(int peer) {
    // It says that it has left before it lets go.
    boolean inGoodOrder = left.test(peer);
    if (!inGoodOrder && !closing) {
      dead.accept(peer);
    }
    gone[peer] = true;
    LOG.debug("{}: process {} {}", thread.name(), peer, inGoodOrder ? "has left" : "is dead");
  }
}
