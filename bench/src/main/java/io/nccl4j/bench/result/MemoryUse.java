package io.nccl4j.bench.result;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.NcclException;
import io.nccl4j.bench.machine.ThisProcess;
import io.nccl4j.cuda.NcclCommunicator;
import io.nccl4j.cuda.NcclMemoryStatistics;
import java.util.OptionalLong;
import org.jspecify.annotations.Nullable;

/**
 * Memory of rank 0 and its process at the end of a run, in bytes.
 *
 * @param bufferBytes send and receive buffer of the rank
 * @param peakResidentBytes the most memory the process had at once; empty where the system does not
 *     tell
 * @param sharedResidentBytes of what it has now, shared memory: on the host backend its heap
 * @param nccl what NCCL allocated; null where it does not tell
 * @param ncclProblem why not; empty if it does
 */
public record MemoryUse(
    long bufferBytes,
    OptionalLong peakResidentBytes,
    OptionalLong sharedResidentBytes,
    @Nullable NcclMemoryStatistics nccl,
    String ncclProblem) {
  /** Of the rank of a communicator; its thread calls it. */
  public static MemoryUse of(Communicator communicator, long bufferBytes) {
    NcclMemoryStatistics nccl = null;
    String problem = "";
    if (communicator instanceof NcclCommunicator owner) {
      try {
        nccl = owner.memoryStatistics();
      } catch (NcclException older) {
        problem = String.valueOf(older.getMessage());
      }
    } else {
      problem = "the " + Backend.HOST.label() + " backend does not use NCCL";
    }
    return new MemoryUse(
        bufferBytes,
        ThisProcess.peakResidentBytes(),
        ThisProcess.sharedResidentBytes(),
        nccl,
        problem);
  }
}
