package io.nccl4j.internal.cuda.module;

import java.lang.foreign.MemorySegment;
import java.util.function.IntSupplier;

/** A stream as kernels see it. */
public interface KernelStream {

  /** CUDA's handle. */
  MemorySegment handle();

  /** Launches a kernel by the call of the driver; there is room for it. */
  void run(PtxKernel.Run kernel, IntSupplier call);
}
