package io.nccl4j.cuda;

import io.nccl4j.CommunicatorConfig;
import io.nccl4j.bindings.NcclStructs;
import io.nccl4j.bindings.nccl.ncclConfig_v23000;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/** A configuration as NCCL reads it. */
final class NcclConfig {
  private NcclConfig() {}

  static MemorySegment write(Arena arena, CommunicatorConfig config) {
    MemorySegment struct = ncclConfig_v23000.allocate(arena);
    NcclStructs.fillConfig(struct);
    // Otherwise NCCL starts a thread for every launch, which costs ten times the launch.
    ncclConfig_v23000.blocking(struct, 1);
    return struct;
  }
}
