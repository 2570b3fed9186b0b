package io.nccl4j.internal.cuda.memory;

import io.nccl4j.NcclException;
import io.nccl4j.bindings.cuda.Cuda;
import io.nccl4j.internal.cuda.driver.Backoff;
import io.nccl4j.internal.cuda.driver.Driver;
import io.nccl4j.internal.cuda.driver.Gpu;
import io.nccl4j.internal.cuda.driver.StreamHandle;
import io.nccl4j.memory.MemoryPurpose;
import java.lang.foreign.MemorySegment;
import java.util.function.IntSupplier;

/**
 * Blocking copies between Java arrays and a GPU, through pinned memory, on a stream of their own so
 * that they need not wait for collectives. It owns the stream and the pinned block for the
 * process's life. One copy at a time.
 */
@SuppressWarnings("try") // a scope is entered, not used
final class Transfers {
  private static final long BYTES = 1 << 20;

  private final Gpu gpu;
  private final MemorySegment stream;
  private final MemorySegment staging;

  Transfers(Gpu gpu, PinnedHeap pinned) {
    this.gpu = gpu;
    PinnedHeap.Block block = pinned.allocate(MemoryPurpose.COPY, BYTES);
    try {
      this.stream = StreamHandle.newHandle(gpu);
    } catch (NcclException e) {
      pinned.free(block);
      throw e;
    }
    this.staging = block.segment();
  }

  synchronized void toDevice(long target, MemorySegment source) {
    for (long done = 0; done < source.byteSize(); done += BYTES) {
      long at = target + done;
      long bytes = Math.min(BYTES, source.byteSize() - done);
      MemorySegment.copy(source, done, staging, 0, bytes);
      run(() -> Cuda.cuMemcpyHtoDAsync_v2(at, staging, bytes, stream), "cuMemcpyHtoDAsync");
    }
  }

  synchronized void toHost(MemorySegment target, long source) {
    for (long done = 0; done < target.byteSize(); done += BYTES) {
      long at = source + done;
      long bytes = Math.min(BYTES, target.byteSize() - done);
      run(() -> Cuda.cuMemcpyDtoHAsync_v2(staging, at, bytes, stream), "cuMemcpyDtoHAsync");
      MemorySegment.copy(staging, 0, target, done, bytes);
    }
  }

  /** A virtual thread may go on elsewhere after waiting: the scope ends before. */
  private void run(IntSupplier copy, String call) {
    try (Gpu.Scope ignored = gpu.enter()) {
      Driver.check(copy.getAsInt(), call);
    }
    await();
  }

  /** The device reads or writes what the next copy needs, too: an interrupt cannot end that. */
  private void await() {
    long start = System.nanoTime();
    int result = Cuda.cuStreamQuery(stream);
    while (result == Driver.NOT_READY) {
      Backoff.pauseUninterruptibly(System.nanoTime() - start);
      result = Cuda.cuStreamQuery(stream);
    }
    Driver.check(result, "cuStreamQuery");
  }
}
