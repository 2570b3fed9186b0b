package io.nccl4j.internal.spi;

import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.memory.MemoryPool;
import io.nccl4j.memory.MemoryPoolOptions;

/** A device of one of our backends. */
public interface BackendDevice extends Device, MemoryOwner {
  /** See {@link MemoryPool#create(Device, MemoryPoolOptions)}. */
  MemoryPool newMemoryPool(MemoryPoolOptions options);

  /**
   * A buffer as large as {@code own} over memory that is wrapped, not allocated here, and that
   * nobody has to free. It may be the memory of {@code own}.
   */
  DeviceBuffer wrapLike(DeviceBuffer own);
}
