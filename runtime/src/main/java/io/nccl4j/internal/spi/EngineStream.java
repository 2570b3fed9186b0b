package io.nccl4j.internal.spi;

import io.nccl4j.Stream;

/** How far a stream has come, for memory that it may still use. */
public interface EngineStream extends Stream {
  /** Its number among the streams of this process, from 1, in order of creation. */
  long number();

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
