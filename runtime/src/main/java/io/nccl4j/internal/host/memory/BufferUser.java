package io.nccl4j.internal.host.memory;

import io.nccl4j.internal.memory.Uses;

/** What works with buffers, and perhaps still does when one is closed. */
public interface BufferUser {
  /** Adds its unfinished work with a buffer, or slices of it. Any thread. */
  void addUses(Object buffer, Uses uses);
}
