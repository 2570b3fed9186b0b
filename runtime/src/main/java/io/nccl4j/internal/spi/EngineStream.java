package io.nccl4j.internal.spi;

import io.nccl4j.Stream;

/**
 * A stream as the scheduler sees it: works are appended one by one and become visible together.
 * Called by the submitting thread only, but where any thread is said.
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

  /** Whether the plans of a group are held back until all are published: {@link #hold()}. */
  default boolean startsTogether() {
    return false;
  }

  /**
   * A group is about to be published into this stream and others: what {@link #publish()} makes
   * visible may be held back until {@link #start()}. Called once or more.
   */
  default void hold() {}

  /**
   * Ends {@link #hold()} for all streams of this thread's group. Called for each of them.
   *
   * @throws io.nccl4j.NcclException if the group could not be started; its communicators have
   *     failed
   */
  default void start() {}

  /**
   * Makes the appended works one plan and visible to whoever drives the stream.
   *
   * @throws io.nccl4j.NcclException if the backend starts it at once and could not; the works are
   *     given back and their communicators have failed
   */
  void publish();

  /** Publishes a plan of one work: {@link #append} and {@link #publish()} in one. */
  default void publish(W work) {
    append(work);
    publish();
  }

  /** Whether works are kept in a graph instead of being run. */
  @Override
  boolean isCapturing();

  /** Whether {@link #append} was called since the last {@link #publish}. */
  boolean hasAppended();

  /**
   * Throws if it is closed or has failed.
   *
   * @throws io.nccl4j.NcclException why
   */
  void requireUsable();

  /** Whether it was closed; everything in it has been passed then. Any thread. */
  boolean isClosed();

  /** How many entries were put in so far. Any thread. */
  long position();

  /** Up to which {@link #position} all is known to be done; it only grows. Any thread. */
  long passed();

  /** Finds out how far it has come, without waiting, as far as that can be. Any thread. */
  void learnPassed();
}
