package io.nccl4j.memory;

import io.nccl4j.BackendOptions;

/** Options of a backend on which the memory of a communicator depends. */
public interface MemoryOptions extends BackendOptions {
  /** A copy of the query with the values that these options set. */
  MemoryQuery applyTo(MemoryQuery query);
}
