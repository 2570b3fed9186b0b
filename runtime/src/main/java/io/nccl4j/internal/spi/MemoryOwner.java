package io.nccl4j.internal.spi;

import io.nccl4j.memory.MemoryReport;

/** What takes memory and can say how much: a device, a rank of a communicator. */
public interface MemoryOwner {
  /** What it has taken; any thread. */
  MemoryReport memory();
}
