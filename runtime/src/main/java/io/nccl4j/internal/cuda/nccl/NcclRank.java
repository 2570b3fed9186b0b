package io.nccl4j.internal.cuda.nccl;

import io.nccl4j.CommunicatorConfig;
import io.nccl4j.internal.cuda.memory.DeviceMemory;
import io.nccl4j.internal.operation.Signature;
import io.nccl4j.internal.schedule.Work;
import io.nccl4j.internal.schedule.WorkFifo;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/** One rank of a communicator: who it is, NCCL's handle, and what it has called. */
public final class NcclRank {
  private final String name;
  private final int rank;
  private final int nranks;
  private final CommunicatorConfig config;
  private final DeviceMemory memory;
  private final NcclHandle handle;
  private final NcclReductions reductions;
  private final MemorySegment barrierFlag;
  private final WorkFifo<? extends Work> fifo;
  private final CudaLedger ledger;

  /**
   * A rank over a handle that is ready; it owns it.
   *
   * @param name the communicator's
   * @param barrierFlag four bytes of the device that barriers reduce
   */
  public NcclRank(
      String name,
      int rank,
      int nranks,
      CommunicatorConfig config,
      DeviceMemory memory,
      MemorySegment handle,
      MemorySegment barrierFlag,
      WorkFifo<? extends Work> fifo) {
    this.name = name;
    this.rank = rank;
    this.nranks = nranks;
    this.config = config;
    this.memory = memory;
    this.handle = new NcclHandle(handle, name, config.closeTimeout());
    this.reductions = new NcclReductions(this.handle);
    this.barrierFlag = barrierFlag;
    this.fifo = fifo;
    this.ledger = new CudaLedger(nranks);
  }

  /** The communicator's name. */
  public String name() {
    return name;
  }

  int rank() {
    return rank;
  }

  int nranks() {
    return nranks;
  }

  /** The communicator's configuration. */
  public CommunicatorConfig config() {
    return config;
  }

  /** Its device's memory. */
  public DeviceMemory memory() {
    return memory;
  }

  /** NCCL's handle. */
  public NcclHandle handle() {
    return handle;
  }

  /** Reductions made for what is being launched. */
  public NcclReductions reductions() {
    return reductions;
  }

  MemorySegment barrierFlag() {
    return barrierFlag;
  }

  WorkFifo<? extends Work> fifo() {
    return fifo;
  }

  /** What it has called. */
  public CudaLedger ledger() {
    return ledger;
  }

  /** How messages name one of its works. */
  public String describe(Work work) {
    return Signature.describe(work.code(), work.count)
        + " #"
        + work.seq
        + " of communicator "
        + name;
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
