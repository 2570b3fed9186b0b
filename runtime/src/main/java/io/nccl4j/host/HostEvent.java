package io.nccl4j.host;

import io.nccl4j.Device;
import io.nccl4j.Event;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.jspecify.annotations.Nullable;

/**
 * A point in a host stream. Each record has a generation; a waiter waits for the one that was last
 * when it asked.
 */
final class HostEvent implements Event {
  private record Waiter(long generation, CompletableFuture<Void> future) {}

  private final HostDevice device;
  private final List<Waiter> waiters = new ArrayList<>();
  private volatile long issued;
  private volatile long completed;
  private volatile long completedNanos;
  private volatile @Nullable NcclException failure;
  private volatile @Nullable HostStream stream;
  private volatile long position;
  private volatile boolean closed;
  private volatile @Nullable Capture capture;
  private int[] capturedAfter = {};

  HostEvent(HostDevice device) {
    this.device = device;
  }

  @Override
  public Device device() {
    return device;
  }

  /** Starts a new record; the submitting thread's. */
  long issue(HostStream on, long target) {
    if (capture != null) {
      capture = null;
    }
    stream = on;
    position = target;
    long generation = issued + 1;
    issued = generation;
    return generation;
  }

  /** Notes that the event was recorded in a capture, after these nodes, and not in a stream. */
  void captureAt(Capture in, int[] after) {
    capturedAfter = after;
    capture = in;
  }

  @Nullable Capture capture() {
    return capture;
  }

  int[] capturedAfter() {
    return capturedAfter;
  }

  long issued() {
    return issued;
  }

  @Nullable NcclException failure() {
    return failure;
  }

  void requireOpen() {
    if (closed) {
      throw new InvalidUsageException(
          "the event is closed", "create a new one with device.newEvent()");
    }
  }

  private void requireNotCaptured(String call) {
    if (capture != null) {
      throw new InvalidUsageException(
          call + ": the event was last recorded in a capture, which runs nothing",
          "record it outside a capture");
    }
  }

  /** Ends a record; by the owner of the stream. */
  void complete(long generation, @Nullable NcclException error) {
    failure = error;
    completedNanos = System.nanoTime();
    List<Waiter> ready;
    synchronized (waiters) {
      completed = generation;
      if (waiters.isEmpty()) {
        return;
      }
      ready = waiters.stream().filter(w -> w.generation <= generation).toList();
      waiters.removeAll(ready);
    }
    // Not on this thread: it is driving a stream, and what hangs on the future may take long.
    for (Waiter waiter : ready) {
      if (error == null) {
        waiter.future.completeAsync(() -> null);
      } else {
        CompletableFuture<Void> unused =
            CompletableFuture.runAsync(() -> waiter.future.completeExceptionally(error));
      }
    }
  }

  boolean isComplete(long generation) {
    return completed >= generation;
  }

  @Override
  public boolean isComplete() {
    requireOpen();
    requireNotCaptured("isComplete");
    if (!isComplete(issued)) {
      HostStream on = stream;
      if (on != null) {
        Progress.poke(on);
      }
    }
    return isComplete(issued);
  }

  @Override
  public void synchronize() {
    requireOpen();
    requireNotCaptured("synchronize");
    long generation = issued;
    HostStream on = stream;
    if (on != null && !isComplete(generation)) {
      Progress.drive(on, position, Long.MAX_VALUE);
    }
    NcclException error = failure;
    if (error != null) {
      throw error;
    }
  }

  @Override
  public Duration elapsedSince(Event start) {
    requireOpen();
    if (!(start instanceof HostEvent begin)) {
      throw new InvalidArgumentException(
          "the start event is not of a host device", "pass an event of this backend");
    }
    requireRecorded(begin, "start");
    requireRecorded(this, "end");
    return Duration.ofNanos(completedNanos - begin.completedNanos);
  }

  private static void requireRecorded(HostEvent event, String name) {
    if (event.issued == 0 || !event.isComplete()) {
      throw new InvalidUsageException(
          "the "
              + name
              + " event "
              + (event.issued == 0 ? "was never recorded" : "is not complete"),
          "record it and synchronize first");
    }
  }

  @Override
  public CompletableFuture<Void> toFuture() {
    requireOpen();
    requireNotCaptured("toFuture");
    synchronized (waiters) {
      if (!isComplete(issued)) {
        CompletableFuture<Void> future = new CompletableFuture<>();
        waiters.add(new Waiter(issued, future));
        return future;
      }
    }
    NcclException error = failure;
    return error == null
        ? CompletableFuture.completedFuture(null)
        : CompletableFuture.failedFuture(error);
  }

  @Override
  public void close() {
    closed = true;
  }
}
