package io.nccl4j.memory;

import io.nccl4j.Communicator;
import io.nccl4j.Device;
import io.nccl4j.Unstable;

/** What the runtime does for this package; see {@link io.nccl4j.Provider#get(Class)}. */
@Unstable
public interface MemoryProvider {
  /** See {@link MemoryPrediction#of}. */
  MemoryPrediction predict(MemoryQuery query);

  /** See {@link MemoryReport#of(Device)}. */
  MemoryReport report(Device device);

  /** See {@link MemoryReport#of(Communicator)}. */
  MemoryReport report(Communicator communicator);

  /** See {@link MemoryPool#create(Device, MemoryPoolOptions)}. */
  MemoryPool newPool(Device device, MemoryPoolOptions options);
}
