package io.nccl4j.internal.schedule;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;

/** What a backend does for an event. Any thread. */
public interface EventEngine {
  /** Whether it was ever recorded outside captures. */
  boolean isRecorded();

  /** Whether the last record is known to be done; true if there is none. */
  boolean isDone();

  /** {@link #isDone()}, after moving its stream on if the backend must. */
  default boolean poll() {
    return isDone();
  }

  /** Waits for the last record. */
  void synchronize();

  /** The time from {@code start}, an event of this backend, to this one; both are done. */
  Duration elapsedSince(EventEngine start);

  /** Completes when the last record is done. */
  CompletableFuture<Void> toFuture();

  /** Releases what it holds, once. */
  void close();
}
