package io.nccl4j.host;

import io.nccl4j.InvalidUsageException;
import io.nccl4j.SystemErrorException;
import io.nccl4j.bindings.Errno;
import io.nccl4j.bindings.RobustMutex;
import java.lang.foreign.MemorySegment;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.LockSupport;
import java.util.function.IntConsumer;
import java.util.function.IntPredicate;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;

/**
 * Notices the death of a peer process within milliseconds, however large its heap is.
 *
 * <p>Each process of a communicator holds one robust process-shared mutex in the control block from
 * {@link #hold} until it dies or closes. The kernel releases the mutexes of a dying process before
 * it frees the process's memory, so whoever waits for one learns of the death at once. The mutexes
 * protect nothing: they are a signal.
 *
 * <p>A process watches exactly one other: the next one after itself in cyclic order that has
 * neither left nor died. So every living process is watched by somebody as long as two are left.
 * Who gets a peer's mutex, in whatever way, knows that the peer does not hold it any more:
 *
 * <ul>
 *   <li>the peer has left in good order: nothing to report, whether it released the mutex or died
 *       after leaving;
 *   <li>otherwise it is dead. This stays true if another watcher held the mutex in between and died
 *       itself: it could only get the mutex because the peer had let go of it.
 * </ul>
 *
 * <p>The mutex is made consistent and released at once, so that others find it too. A stopped or
 * busy process keeps its mutex and is not reported; one that writes a core file is reported when
 * the kernel is done with that.
 *
 * <p>Threads: one daemon thread per object does all locking, waiting and reporting; the methods may
 * be called by any thread. Memory: the mutexes must stay mapped until the future of {@link #close}
 * is complete.
 */
final class DeathWatch {
  /** Bytes of one mutex; its address must be a multiple of 8. */
  static final int MUTEX_BYTES = 64;

  private static final Logger LOG = LogManager.getLogger(DeathWatch.class);

  /** Longest wait for a mutex before looking at the world again; bounds {@link #close}. */
  private static final long SLICE_NANOS = TimeUnit.MILLISECONDS.toNanos(100);

  /** Time between two looks at a mutex that cannot be waited for. */
  private static final long LOOK_NANOS = TimeUnit.MILLISECONDS.toNanos(5);

  /** Longest wait for the own mutex, which nobody else has a reason to hold. */
  private static final long HOLD_SECONDS = 10;

  private static final int NOBODY = -1;

  private final MemorySegment[] mutexes;
  private final int self;
  private final IntPredicate left;
  private final IntConsumer dead;

  /** Processes that are done with, by the watch thread only. */
  private final boolean[] gone;

  private final CompletableFuture<Void> held = new CompletableFuture<>();
  private final CompletableFuture<Void> ended = new CompletableFuture<>();
  private final Thread thread;

  private volatile boolean watching;
  private volatile boolean closing;

  /**
   * A watch that does nothing yet.
   *
   * @param name of the thread
   * @param mutexes one per process, formatted; the index is the process index
   * @param self index of this process
   * @param left tells whether a process has left in good order; asked on the watch thread. Every
   *     process that calls {@link #close} must have made this true for itself before, for all to
   *     see
   * @param dead told about each dead process once, on the watch thread; not after {@link #close}
   */
  DeathWatch(String name, MemorySegment[] mutexes, int self, IntPredicate left, IntConsumer dead) {
    this.mutexes = mutexes.clone();
    this.self = self;
    this.left = left;
    this.dead = dead;
    gone = new boolean[mutexes.length];
    thread = Thread.ofPlatform().daemon().name(name).unstarted(this::run);
  }

  /**
   * Initialises a mutex. Done once for each, by the process that is to hold it.
   *
   * @param mutex {@value #MUTEX_BYTES} bytes of shared memory
   */
  static void format(MemorySegment mutex) {
    RobustMutex.init(mutex);
  }

  /**
   * Whether a mutex may be waited for: the C library aborts the process where it is told that a
   * mutex is of a kind that this one is not.
   */
  static boolean isFormatted(MemorySegment mutex) {
    return RobustMutex.isOne(mutex);
  }

  /**
   * Starts the thread and waits until it holds this process's mutex, so that others may watch it.
   * Called once, before {@link #watch}.
   *
   * @throws SystemErrorException if the mutex cannot be had; the thread has ended, or does so soon
   * @throws InvalidUsageException if this watch was started or closed before
   */
  void hold() {
    synchronized (this) {
      if (closing || thread.getState() != Thread.State.NEW) {
        throw new InvalidUsageException(thread.getName() + " was started or closed before", "");
      }
      thread.start();
    }
    try {
      held.get(HOLD_SECONDS, TimeUnit.SECONDS);
    } catch (ExecutionException e) {
      throw notHeld("cannot hold its death signal: " + e.getCause().getMessage(), e.getCause());
    } catch (TimeoutException e) {
      throw notHeld("does not hold its death signal after " + HOLD_SECONDS + " s", e);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw notHeld("was interrupted before it held its death signal", e);
    }
  }

  private SystemErrorException notHeld(String what, Throwable cause) {
    requestEnd();
    SystemErrorException failure = new SystemErrorException(thread.getName() + " " + what, "");
    failure.initCause(cause);
    return failure;
  }

  /**
   * Starts watching. Every process of the communicator must have returned from {@link #hold}
   * before, or it is taken for dead.
   */
  void watch() {
    watching = true;
    LockSupport.unpark(thread);
  }

  /**
   * Asks the thread to release this process's mutex and to end, which takes up to about 100 ms.
   * This process must count as left before. May be called repeatedly, at any time.
   *
   * @return completes when the mutexes are no longer touched; never exceptionally
   */
  CompletableFuture<Void> close() {
    requestEnd();
    return ended.copy();
  }

  private synchronized void requestEnd() {
    closing = true;
    if (thread.getState() == Thread.State.NEW) {
      ended.complete(null);
    } else {
      LockSupport.unpark(thread);
    }
  }

  private void run() {
    try {
      if (acquireOwn()) {
        held.complete(null);
        watchUntilClosing();
        check("releasing", self, RobustMutex.unlock(mutexes[self]));
      }
    } catch (RuntimeException | Error e) {
      if (!held.completeExceptionally(e)) {
        report(e);
      }
    } finally {
      ended.complete(null);
    }
  }

  /** False if the watch was closed meanwhile. */
  private boolean acquireOwn() {
    while (!closing) {
      int error = RobustMutex.timedLock(mutexes[self], SLICE_NANOS);
      if (error == Errno.EOWNERDEAD) {
        // Somebody took it too early and died.
        check("repairing", self, RobustMutex.consistent(mutexes[self]));
        return true;
      }
      if (error != Errno.ETIMEDOUT) {
        check("locking", self, error);
        return true;
      }
    }
    held.completeExceptionally(new IllegalStateException("closed meanwhile"));
    return false;
  }

  private void watchUntilClosing() {
    while (!closing) {
      try {
        int peer = watching ? next() : NOBODY;
        if (peer == NOBODY) {
          LockSupport.park(this);
        } else {
          lookAt(peer);
        }
        if (Thread.interrupted()) {
          LOG.debug("{}: nobody has a reason to interrupt this thread", thread.getName());
        }
      } catch (RuntimeException | Error e) {
        // To release the mutex now would announce the death of this living process.
        watching = false;
        report(e);
      }
    }
  }

  private int next() {
    for (int i = 1; i < mutexes.length; i++) {
      int peer = (self + i) % mutexes.length;
      if (!gone[peer]) {
        gone[peer] = left.test(peer);
        if (!gone[peer]) {
          return peer;
        }
      }
    }
    return NOBODY;
  }

  private void lookAt(int peer) {
    int error = RobustMutex.timedLock(mutexes[peer], SLICE_NANOS);
    switch (error) {
      case Errno.ETIMEDOUT -> LOG.trace("{}: process {} is there", thread.getName(), peer);
      case Errno.EDEADLK ->
          // The owner's thread has the same number as this one, in another PID namespace.
          LockSupport.parkNanos(this, LOOK_NANOS);
      case Errno.ENOTRECOVERABLE -> letGo(peer, error);
      case Errno.EOWNERDEAD -> {
        check("repairing", peer, RobustMutex.consistent(mutexes[peer]));
        check("releasing", peer, RobustMutex.unlock(mutexes[peer]));
        letGo(peer, error);
      }
      default -> {
        check("locking", peer, error);
        check("releasing", peer, RobustMutex.unlock(mutexes[peer]));
        letGo(peer, error);
      }
    }
  }

  /** The peer does not hold its mutex any more. */
  private void letGo(int peer, int error) {
    gone[peer] = true;
    if (left.test(peer)) {
      LOG.debug("{}: process {} has left", thread.getName(), peer);
    } else if (!closing) {
      LOG.debug(
          "{}: process {} is dead ({})",
          thread.getName(),
          peer,
          error == 0 ? "released without leaving" : Errno.name(error));
      try {
        dead.accept(peer);
      } catch (RuntimeException e) {
        report(e);
      }
    }
  }

  private void check(String what, int process, int error) {
    if (error != 0) {
      throw new SystemErrorException(
          what + " the death signal of process " + process + " failed with " + Errno.name(error),
          "all processes need the same C library");
    }
  }

  /** Nobody waits for this thread: as if it had ended with the error. */
  private void report(Throwable e) {
    thread.getUncaughtExceptionHandler().uncaughtException(thread, e);
  }
}
