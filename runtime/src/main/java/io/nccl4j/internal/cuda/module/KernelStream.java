package io.nccl4j.internal.cuda.module;

import io.nccl4j.Stream;
import java.lang.foreign.MemorySegment;
import java.util.function.IntSupplier;

/** A stream as kernels see it. */
public interface KernelStream extends Stream {
  /** CUDA's handle. */
  MemorySegment handle();

  /**
   * Waits, by driving what is queued, until one more launch has room.
   *
   * @throws io.nccl4j.NcclException if the stream has failed
   */
  void awaitRoom();

  /** Launches a kernel by the call of the driver; there is room for it. */
  void run(PtxKernel.Run kernel, IntSupplier call);
}
