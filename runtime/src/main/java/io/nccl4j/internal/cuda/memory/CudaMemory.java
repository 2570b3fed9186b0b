package io.nccl4j.internal.cuda.memory;

import io.nccl4j.internal.memory.NcclMemory;
import io.nccl4j.memory.MemoryPlace;
import io.nccl4j.memory.MemoryPrediction;
import io.nccl4j.memory.MemoryPrediction.Basis;
import io.nccl4j.memory.MemoryPrediction.Line;
import io.nccl4j.memory.MemoryPrediction.When;
import io.nccl4j.memory.MemoryPurpose;
import io.nccl4j.memory.MemoryQuery;
import io.nccl4j.memory.MemoryQuery.Lever;
import java.util.ArrayList;
import java.util.List;

/** The memory that a communicator takes on a GPU: NCCL's, and what this backend adds. */
public final class CudaMemory {
  private CudaMemory() {}

  /**
   * Predicts; loads no library.
   *
   * @param first whether nothing was taken on the device before
   */
  public static MemoryPrediction predict(MemoryQuery query, boolean first) {
    List<Line> lines = new ArrayList<>(NcclMemory.lines(query));
    lines.add(
        new Line(
            MemoryPurpose.BARRIER,
            MemoryPlace.DEVICE,
            When.JOIN,
            first ? CudaHeap.FIRST_CHUNK_BYTES : CudaHeap.ALIGNMENT,
            Basis.OWN,
            first ? "the device's first chunk, which buffers share" : "of a chunk that is there"));
    lines.add(
        new Line(
            MemoryPurpose.FIFO,
            MemoryPlace.HEAP,
            When.JOIN,
            query.value(Lever.FIFO),
            Basis.OWN,
            "fifo-bytes"));
    return new MemoryPrediction(query, lines);
  }
}
