package io.nccl4j.internal.spi;

import io.nccl4j.cuda.NcclProvider;

/** What only a backend over NCCL can do. */
public interface NcclRuntime extends BackendRuntime, NcclProvider {
  /** What NCCL takes at least in {@code /dev/shm} of a process with a rank on each GPU; bytes. */
  long sharedMemoryNeed();
}
