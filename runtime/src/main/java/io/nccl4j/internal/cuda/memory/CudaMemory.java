package io.nccl4j.internal.cuda.memory;

import io.nccl4j.MemoryPlace;
import io.nccl4j.MemoryPrediction;
import io.nccl4j.MemoryPrediction.Basis;
import io.nccl4j.MemoryPrediction.Line;
import io.nccl4j.MemoryPrediction.When;
import io.nccl4j.MemoryPurpose;
import io.nccl4j.MemoryQuery;
import io.nccl4j.MemoryQuery.Lever;
import io.nccl4j.internal.memory.NcclMemory;
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
            first ? CudaHeap.CHUNK_BYTES : CudaHeap.ALIGNMENT,
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
