package io.nccl4j.internal.host;

import io.nccl4j.NcclException;
import io.nccl4j.internal.host.progress.Progress;
import io.nccl4j.internal.schedule.EventEngine;
import io.nccl4j.internal.spi.Failures;
import io.nccl4j.internal.spi.Promise;
import java.time.Duration;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import org.jspecify.annotations.Nullable;

/**
 * A point in a host stream. Who waits, waits for the record that was last when it asked: for a
 * place in a stream, which is passed once and for all, whatever becomes of the event. Records of
 * different streams may end in another order than they were made in; each has a generation, so that
 * what is known of the last one is not taken back by an earlier one.
 */
final class HostEvent implements EventEngine {
  /** A future, in a list: a record ends without allocating anything. */
  private static final class Waiter extends Promise {
    final long generation;
    @Nullable Waiter next;

    Waiter(long generation, @Nullable Waiter next) {
      this.generation = generation;
      this.next = next;
    }
  }

  private final DeviceRanks ranks;

  /** The stream of the last record. All that is known of that record is guarded by this object. */
  private @Nullable HostQueue stream;

  private long position;
  private long issued;

  /** The newest record that has ended, and when. */
  private long completed;

  private long completedNanos;
  private @Nullable Waiter waiters;

  /** An event that was never recorded, on the device of these ranks. */
  HostEvent(DeviceRanks ranks) {
    this.ranks = ranks;
  }

  /**
   * Starts a new record; the submitting thread's.
   *
   * @param target up to where {@code on} must be driven to see it done
   * @return its generation
   */
  synchronized long issue(HostQueue on, long target) {
    stream = on;
    position = target;
    return ++issued;
  }

  /** Makes a stream's entry wait for the last record; returns its stream, null if there is none. */
  synchronized @Nullable HostQueue awaitBy(StreamTask task) {
    task.awaited = stream;
    task.generation = position;
    return stream;
  }

  /** Ends a record; by the owner of the stream. */
  void complete(long generation, @Nullable NcclException error) {
    Waiter ready;
    synchronized (this) {
      if (generation > completed) {
        completed = generation;
        completedNanos = System.nanoTime();
      }
      ready = takeWaiters(generation);
    }
    while (ready != null) {
      Waiter following = ready.next;
      ready.settle(error);
      ready = following;
    }
  }

  /** Those of a record; allocates nothing. Under the lock. */
  private @Nullable Waiter takeWaiters(long generation) {
    Waiter taken = null;
    Waiter kept = null;
    Waiter waiter = waiters;
    while (waiter != null) {
      Waiter following = waiter.next;
      if (waiter.generation == generation) {
        waiter.next = taken;
        taken = waiter;
      } else {
        waiter.next = kept;
        kept = waiter;
      }
      waiter = following;
    }
    waiters = kept;
    return taken;
  }

  @Override
  public synchronized boolean isRecorded() {
    return issued != 0;
  }

  @Override
  public synchronized boolean isDone() {
    return completed == issued;
  }

  /** Why what lies before the last record failed; null if it did not. */
  private synchronized @Nullable NcclException failure() {
    return stream == null ? null : stream.failureUpTo(position);
  }

  @Override
  public boolean poll() {
    if (!isDone()) {
      HostQueue on;
      synchronized (this) {
        on = stream;
      }
      Progress.poke(Objects.requireNonNull(on));
    }
    return isDone();
  }

  @Override
  public void synchronize() {
    HostQueue on;
    long target;
    synchronized (this) {
      on = stream;
      target = position;
    }
    if (on == null) {
      return;
    }
    Progress.drive(on, target, Long.MAX_VALUE);
    NcclException error = on.failureUpTo(target);
    if (error != null) {
      throw Failures.again(error);
    }
    ranks.compare();
  }

  @Override
  public Duration elapsedSince(EventEngine start) {
    return Duration.ofNanos(completedNanos() - ((HostEvent) start).completedNanos());
  }

  private synchronized long completedNanos() {
    return completedNanos;
  }

  @Override
  public CompletableFuture<Void> toFuture() {
    synchronized (this) {
      if (completed != issued) {
        waiters = new Waiter(issued, waiters);
        return waiters.future();
      }
    }
    NcclException error = failure();
    return error == null
        ? CompletableFuture.completedFuture(null)
        : CompletableFuture.failedFuture(Failures.again(error));
  }

  @Override
  public void close() {}
}
