package io.nccl4j.internal.cuda.nccl;

import io.nccl4j.CommunicatorConfig;
import io.nccl4j.internal.cuda.memory.DeviceMemory;
import io.nccl4j.internal.schedule.Wording;
import io.nccl4j.internal.schedule.Work;
import io.nccl4j.internal.schedule.WorkFifo;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/**
 * One rank of a communicator: who it is, NCCL's handle, and what it has called.
 *
 * @param name the communicator's
 * @param memory its device's
 * @param reductions made for what is being launched
 * @param barrierFlag four bytes of the device that barriers reduce
 */
public record NcclRank(
    String name,
    int rank,
    int nranks,
    CommunicatorConfig config,
    DeviceMemory memory,
    NcclHandle handle,
    NcclReductions reductions,
    MemorySegment barrierFlag,
    WorkFifo<? extends Work> fifo,
    CudaLedger ledger,
    Wording wording) {
  /** A rank that has called nothing yet. */
  public static NcclRank of(
      String name,
      int rank,
      int nranks,
      CommunicatorConfig config,
      DeviceMemory memory,
      NcclHandle handle,
      MemorySegment barrierFlag,
      WorkFifo<? extends Work> fifo) {
    return new NcclRank(
        name,
        rank,
        nranks,
        config,
        memory,
        handle,
        new NcclReductions(handle),
        barrierFlag,
        fifo,
        new CudaLedger(nranks),
        new Wording(name, fifo));
  }

  /**
   * The counts of a collective in which all ranks pass those of all, for messages; null if it is
   * another one, or its place was used again.
   */
  long @Nullable [] commonCounts(long seq) {
    for (int i = 0; i < fifo.capacity(); i++) {
      Work work = fifo.at(i);
      if (work.operation.hasCommonCounts() && work.seq == seq) {
        return work.commonCounts().clone();
      }
    }
    return null;
  }
}
