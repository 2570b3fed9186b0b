package io.nccl4j.internal.cuda.memory;

import io.nccl4j.internal.memory.Uses;
import org.jspecify.annotations.Nullable;

/** The streams of a device, which use its memory. Thread-safe. */
public interface MemoryUsers {
  /** Learns what the device has passed. */
  void learnPassed();

  /** The unfinished work that uses a buffer or module. */
  Uses usesOf(Object used);

  /** What uses a buffer or module, in words; null if nothing does. */
  @Nullable String userOf(Object used);
}
