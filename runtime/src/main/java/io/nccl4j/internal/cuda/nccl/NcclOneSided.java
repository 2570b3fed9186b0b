package io.nccl4j.internal.cuda.nccl;

import io.nccl4j.DeviceBuffer;
import io.nccl4j.bindings.nccl.Nccl;
import io.nccl4j.bindings.nccl.ncclWaitSignalDesc_t;
import io.nccl4j.internal.cuda.memory.CudaBuffer;
import io.nccl4j.internal.operation.Operation;
import io.nccl4j.internal.schedule.Work;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.Objects;

/**
 * One-sided operations as calls of NCCL. A work's send counts say the rest: for a put the window's
 * handle and the offset in it, for a wait the number of signals by peer.
 */
final class NcclOneSided {
  private NcclOneSided() {}

  static int issue(Work work, MemorySegment comm, MemorySegment stream) {
    long[] details = Objects.requireNonNull(work.sendCounts);
    if (work.operation == Operation.WAIT_SIGNALS) {
      return await(details, comm, stream);
    }
    if (work.operation == Operation.SIGNAL) {
      return Nccl.ncclSignal(work.root, 0, 0, 0, comm, stream);
    }
    DeviceBuffer source = Objects.requireNonNull(work.send);
    return Nccl.ncclPutSignal(
        ((CudaBuffer) source).pointer(),
        work.count,
        work.type.ordinal(),
        work.root,
        MemorySegment.ofAddress(details[0]),
        details[1],
        0,
        0,
        0,
        comm,
        stream);
  }

  /** NCCL copies the descriptors, and refuses those that wait for nothing. */
  private static int await(long[] counts, MemorySegment comm, MemorySegment stream) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment descriptors = ncclWaitSignalDesc_t.allocateArray(counts.length, arena);
      int used = 0;
      for (int peer = 0; peer < counts.length; peer++) {
        if (counts[peer] > 0) {
          MemorySegment one = ncclWaitSignalDesc_t.asSlice(descriptors, used++);
          ncclWaitSignalDesc_t.opCnt(one, (int) counts[peer]);
          ncclWaitSignalDesc_t.peer(one, peer);
          ncclWaitSignalDesc_t.sigIdx(one, 0);
          ncclWaitSignalDesc_t.ctx(one, 0);
        }
      }
      return Nccl.ncclWaitSignal(used, descriptors, comm, stream);
    }
  }
}
