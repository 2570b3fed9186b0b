package io.nccl4j.internal.host.progress;

import io.nccl4j.InterruptedWaitException;
import io.nccl4j.internal.host.engine.Step;
import io.nccl4j.internal.host.life.LiveRanks;
import io.nccl4j.internal.host.memory.ProcessMemory;
import io.nccl4j.internal.machine.Affinity;
import io.nccl4j.internal.schedule.WaitSteps;
import io.nccl4j.internal.spi.HelperThread;
import io.nccl4j.internal.spi.Interrupts;
import io.nccl4j.internal.spi.Promise;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;

/**
 * Who moves what. Any thread that waits drives the stream it waits for; when that is blocked it
 * helps the other streams it submitted to itself, at once, and those of others when it has waited
 * for a while. One daemon thread, the ticker, steps streams that nobody drives, so that submitted
 * work moves even if nobody waits for it.
 *
 * <p>Waiting goes from polling over {@link Thread#yield} to short sleeps. The clock is read only
 * when polling was in vain. Whether the thread was interrupted is looked at then, too, and after
 * each step that moved something: whoever polls in vain is slow before long.
 */
public final class Progress {
  /** Polls before a wait turns slow: about 60 µs. */
  private static final int SPINS = 2000;

  /**
   * The same when there are more ranks than processors: a peer may need this thread's processor.
   * More than one poll, since what a peer has sent may be about to arrive.
   */
  private static final int SPINS_CROWDED = 3;

  private static final int FAULT_INTERVAL = 64;

  /** Polls in a row, by whoever has nothing else to do. */
  private static final int PATIENCE = 16;

  private static final long YIELD_NANOS = 1_000_000;
  private static final long MIN_SLEEP_NANOS = 50_000;
  private static final long MAX_SLEEP_NANOS = 1_000_000;
  private static final long TICK_NANOS = 1_000_000;
  private static final long IDLE_TICK_NANOS = 10_000_000;
  private static final int TICKS_TO_IDLE = 1000;

  /**
   * The average number of other threads' streams that a waiting thread helps each time it has
   * yielded or slept. If each of 64 waiting ranks helped all the others, they would take the
   * processors from the rank that they wait for.
   */
  private static final int HELPED_PER_PAUSE = 8;

  /** Ticks between two looks at peers, and at memory that waits for them. */
  private static final int TICKS_TO_SWEEP = 8;

  private static final Object LOCK = new Object();
  private static volatile Driven[] streams = {};
  private static volatile int spins = SPINS;
  private static volatile WaitSteps steps = new WaitSteps(false, 0, YIELD_NANOS);
  private static volatile long longestSleep = MAX_SLEEP_NANOS;
  private static final HelperThread TICKER =
      new HelperThread("nccl4j-ticker", Progress::tick, Progress::cannotTick);

  // By the ticker only.
  private static long ticks;
  private static int idleTicks;

  private Progress() {}

  /** A stream that may have work from now on. */
  public static void add(Driven stream) {
    ProcessMemory.self().add(stream);
    synchronized (LOCK) {
      Driven[] longer = Arrays.copyOf(streams, streams.length + 1);
      longer[streams.length] = stream;
      streams = longer;
    }
    watch();
  }

  /** Sees to it that failures of peers are noticed, streams or none. */
  public static void watch() {
    synchronized (LOCK) {
      if (!TICKER.isStarted()) {
        TICKER.start();
      }
    }
  }

  /** A stream that has no work any more. */
  public static void remove(Driven stream) {
    ProcessMemory.self().remove(stream);
    synchronized (LOCK) {
      List<Driven> others = new ArrayList<>(Arrays.asList(streams));
      others.remove(stream);
      streams = others.toArray(new Driven[0]);
    }
  }

  /** All streams. */
  public static Driven[] streams() {
    return streams;
  }

  /** Sets how many polling ranks share the processors here. */
  public static void setRanks(int most) {
    steps = WaitSteps.of(most, YIELD_NANOS);
    spins = steps.crowded() ? SPINS_CROWDED : SPINS;
    longestSleep = WaitSteps.longestSleep(most, MAX_SLEEP_NANOS);
  }

  /**
   * Drives a stream until everything before {@code target} is done.
   *
   * @param timeoutNanos how long at most; {@link Long#MAX_VALUE} for no limit
   * @return false if the time was over first
   * @throws InterruptedWaitException if the calling thread is interrupted and it is not done yet
   */
  public static boolean drive(Driven stream, long target, long timeoutNanos) {
    if (stream.head() >= target) {
      return true;
    }
    Thread me = Thread.currentThread();
    Waiter waiter = null;
    int limit = spins;
    int patience = limit == SPINS ? PATIENCE : 1;
    int polls = 0;
    boolean alone = false;
    long seen = stream.head();
    while (true) {
      int result = Step.BLOCKED;
      if (stream.tryOwn()) {
        try {
          result = stream.run(target, 0);
          if (result == Step.BLOCKED && !alone) {
            alone = !hasMore(stream, me);
          }
          while (result == Step.MOVED && !stream.takeWanted() && !me.isInterrupted()
              || alone && result == Step.BLOCKED && (polls += patience) < limit) {
            if (result == Step.BLOCKED && (polls & FAULT_INTERVAL - 1) == 0) {
              stream.checkFaults();
            }
            long before = stream.ownedHead();
            result = stream.run(target, patience);
            if (result == Step.MOVED || stream.ownedHead() != before) {
              polls = 0;
              if (waiter != null) {
                waiter.moved();
              }
            }
          }
        } finally {
          stream.disown();
        }
      } else {
        stream.want();
        Thread.onSpinWait();
      }
      long head = stream.head();
      if (head >= target) {
        return true;
      }
      if (result == Step.MOVED || head != seen) {
        requireNotInterrupted(me, stream);
        // Whatever comes next is waited for afresh: polling first, sleeping last.
        seen = head;
        polls = 0;
        if (waiter != null) {
          waiter.moved();
        }
        continue;
      }
      if (!alone && help(stream, result == Step.DEPENDS ? null : me)) {
        requireNotInterrupted(me, stream);
        polls = 0;
        continue;
      }
      if (++polls >= limit) {
        if (waiter == null) {
          waiter = Waiter.begin(timeoutNanos);
        }
        requireNotInterrupted(me, stream);
        if (waiter.helps() && help(stream, null)) {
          polls = 0;
          waiter.moved();
        } else if (!waiter.await(stream)) {
          return false;
        }
      }
    }
  }

  /** As {@link #drive}, to its end: an interrupt stays pending until then. */
  public static boolean driveUninterruptibly(Driven stream, long target, long timeoutNanos) {
    long start = System.nanoTime();
    boolean interrupted = Thread.interrupted();
    try {
      while (true) {
        try {
          return drive(stream, target, timeoutNanos - (System.nanoTime() - start));
        } catch (InterruptedWaitException e) {
          interrupted = Thread.interrupted();
        }
      }
    } finally {
      if (interrupted) {
        Thread.currentThread().interrupt();
      }
    }
  }

  /** Not part of {@link #drive}, which stays smaller so. */
  private static void requireNotInterrupted(Thread me, Driven stream) {
    if (me.isInterrupted()) {
      throw Interrupts.ended(stream.describeHead());
    }
  }

  /** Takes what steps it can without waiting. */
  public static void takeSteps(Driven stream) {
    if (stream.hasPending() && stream.tryOwn()) {
      try {
        int ignored = stream.run(stream.tail());
      } finally {
        stream.disown();
      }
    }
  }

  /** The same, and looks whether a peer has failed. */
  public static void poke(Driven stream) {
    if (stream.hasPending() && stream.tryOwn()) {
      try {
        stream.run(stream.tail());
        stream.checkFaults();
      } finally {
        stream.disown();
      }
    }
  }

  /**
   * Takes what steps it can of all streams, then lets other threads run.
   *
   * @param what is waited for, in words
   * @throws InterruptedWaitException if the calling thread is interrupted
   */
  public static void helpAll(String what) {
    boolean moved = help(null, null);
    if (Thread.currentThread().isInterrupted()) {
      throw Interrupts.ended(what);
    }
    if (!moved) {
      LockSupport.parkNanos(MIN_SLEEP_NANOS);
    }
  }

  /**
   * Takes steps of other streams.
   *
   * @param submitter only streams this thread submitted to; null for all
   * @return whether something moved
   */
  private static boolean help(@Nullable Driven waiting, @Nullable Thread submitter) {
    boolean moved = false;
    for (Driven stream : streams) {
      if (stream == waiting
          || submitter != null && !stream.isSubmittedBy(submitter)
          || !stream.hasPending()) {
        continue;
      }
      if (stream.tryOwn()) {
        long before = stream.head();
        int step;
        try {
          step = stream.run(stream.tail());
          if (step == Step.BLOCKED) {
            stream.checkFaults();
          }
        } finally {
          stream.disown();
        }
        if (step == Step.MOVED || stream.head() != before) {
          moved = true;
        }
      }
    }
    return moved;
  }

  /**
   * Whether a thread has submitted work to other streams, too, that it must move while it waits.
   */
  private static boolean hasMore(Driven waiting, Thread submitter) {
    for (Driven stream : streams) {
      if (stream != waiting && stream.isSubmittedBy(submitter) && stream.hasPending()) {
        return true;
      }
    }
    return false;
  }

  /**
   * The slow part of a wait: knows the time, keeps the deadlines, sleeps. Begins only when polling
   * was in vain. Each thread has one, so that a wait allocates nothing however long it is.
   */
  private static final class Waiter {
    private static final ThreadLocal<Waiter> THREADS = ThreadLocal.withInitial(Waiter::new);

    private long timeoutNanos;
    private long start;
    private long slowSince;
    private long sleep;

    /** How often it has let others run since something moved. */
    private int pauses;

    /** That of the calling thread, which waits for one stream at a time. */
    static Waiter begin(long timeoutNanos) {
      Waiter waiter = THREADS.get();
      waiter.timeoutNanos = timeoutNanos;
      waiter.start = System.nanoTime();
      waiter.moved();
      return waiter;
    }

    void moved() {
      slowSince = 0;
      sleep = MIN_SLEEP_NANOS;
      pauses = 0;
    }

    /** Returns whether it is time to help the streams of others. */
    boolean helps() {
      return pauses % (streams.length / HELPED_PER_PAUSE + 1) == 0;
    }

    boolean await(Driven stream) {
      long now = System.nanoTime();
      if (slowSince == 0) {
        slowSince = now;
      }
      if (stream.tryOwn()) {
        try {
          stream.checkFaults();
          stream.checkDeadline(now);
          stream.checkPlacement(now);
        } finally {
          stream.disown();
        }
      }
      if (now - start >= timeoutNanos) {
        return false;
      }
      pauses++;
      if (steps.spinNanos() == Long.MAX_VALUE) {
        Thread.onSpinWait();
      } else if (now - slowSince < steps.yieldNanos()) {
        Thread.yield();
      } else {
        LockSupport.parkNanos(Math.min(sleep, timeoutNanos - (now - start)));
        sleep = Math.min(longestSleep, sleep * 2);
      }
      return true;
    }
  }

  /**
   * A round of the ticker: a stream that has work gets a step if it made no progress since the last
   * tick and had no owner at either. Allocates nothing, so that the peers' work goes on when there
   * is no memory here.
   */
  private static boolean tick() {
    if (ticks++ == 0) {
      Affinity.unbindThread();
    }
    LockSupport.parkNanos(idleTicks < TICKS_TO_IDLE ? TICK_NANOS : IDLE_TICK_NANOS);
    idleTicks = Math.min(idleTicks + 1, TICKS_TO_IDLE);
    Throwable failure = null;
    for (Driven stream : streams) {
      boolean pending = stream.hasPending();
      boolean lazy = pending && !stream.isOwned();
      // A stream that makes progress needs no help, and a tick can delay the rank that drives it.
      boolean stuck = pending && stream.head() == stream.tickedHead;
      if (stuck) {
        idleTicks = 0;
      }
      if (stuck && lazy && stream.wasLazy) {
        try {
          tick(stream);
        } catch (RuntimeException | Error e) {
          // The others get their steps all the same.
          failure = e;
        }
      }
      stream.wasLazy = lazy;
      stream.tickedHead = stream.head();
    }
    HelperThread.rethrow(failure);
    Promise.deliverAll();
    if (ticks % TICKS_TO_SWEEP == 0) {
      LiveRanks.lookAtPeers();
      ProcessMemory.self().heap().sweepIfWaiting();
    }
    return true;
  }

  /** Work that nobody drives would be an endless wait for the peers. */
  private static void cannotTick(Throwable cause) {
    LiveRanks.failAll(rank -> true, "nobody drives unattended streams", cause);
  }

  private static void tick(Driven stream) {
    if (stream.tryOwn()) {
      try {
        int result = stream.run(stream.tail());
        while (result == Step.MOVED && !stream.takeWanted()) {
          result = stream.run(stream.tail());
        }
        stream.checkFaults();
        stream.checkDeadline(System.nanoTime());
      } finally {
        stream.disown();
      }
    }
  }
}
