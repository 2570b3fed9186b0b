package io.nccl4j;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;

/**
 * A point in a stream that other streams and threads can wait for. An event may be recorded
 * repeatedly.
 */
public interface Event extends AutoCloseable {
  /** The device this event belongs to. */
  Device device();

  /** Whether the last record is complete; true before the first record. Never waits. */
  boolean isComplete();

  /**
   * Waits until the last record is complete.
   *
   * @throws InterruptedWaitException if the calling thread was interrupted; the work stays queued
   *     and goes on
   * @throws NcclException if work queued before the record failed
   */
  void synchronize();

  /**
   * Returns the time between the completion of {@code start} and of this event, at the resolution
   * of the device (CUDA: about 0.5 µs; host: the system timer).
   *
   * @throws InvalidUsageException if one of them has not been recorded and completed
   */
  Duration elapsedSince(Event start);

  /**
   * Returns a future that completes, or fails, when the last record does; no thread needs to wait
   * for it.
   */
  CompletableFuture<Void> toFuture();

  /** Releases the event. Closing twice does nothing. */
  @Override
  void close();
}
