package io.nccl4j.spi;

import io.nccl4j.Stream;

/**
 * A stream as the scheduler sees it: works are appended one by one and become visible together.
 * Called by the submitting thread only.
 *
 * @param <W> the backend's work
 */
public interface EngineStream<W> extends Stream {
  /**
   * Waits, by driving what is queued, until one more plan can be published.
   *
   * @throws io.nccl4j.NcclException if the stream has failed
   */
  void awaitRoom();

  /** Adds a work to the plan that is being put together. */
  void append(W work);

  /** Makes the appended works one plan and visible to whoever drives the stream. Cannot fail. */
  void publish();

  /** Publishes a plan of one work: {@link #append} and {@link #publish()} in one. Cannot fail. */
  default void publish(W work) {
    append(work);
    publish();
  }

  /** Whether works are kept in a graph instead of being run. */
  @Override
  boolean isCapturing();

  /** Whether {@link #append} was called since the last {@link #publish}. */
  boolean hasAppended();
}
