package io.nccl4j.internal.cuda;

import io.nccl4j.Backend;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.PinnedBuffer;
import io.nccl4j.bindings.cuda.Cuda;
import io.nccl4j.internal.cuda.driver.Driver;
import io.nccl4j.internal.cuda.driver.Gpu;
import io.nccl4j.internal.cuda.driver.StreamHandle;
import io.nccl4j.internal.cuda.memory.CudaBuffer;
import io.nccl4j.internal.cuda.memory.CudaPinnedBuffer;
import io.nccl4j.internal.cuda.module.PtxKernel;
import io.nccl4j.internal.schedule.Capture;
import io.nccl4j.internal.schedule.StreamEngine;
import io.nccl4j.internal.spi.Resource;
import io.nccl4j.internal.spi.TransferChecks;
import java.lang.foreign.MemorySegment;
import java.util.List;
import java.util.function.IntSupplier;
import org.jspecify.annotations.Nullable;

/** What a stream does besides operations: copies, fills and kernels. */
@SuppressWarnings("try") // a scope is entered, not used
final class StreamTransfers {
  private final Gpu gpu;
  private final StreamEngine<CudaWork> stream;
  private final MemorySegment handle;
  private final StreamQueue queue;

  StreamTransfers(Gpu gpu, StreamEngine<CudaWork> stream, StreamHandle handle, StreamQueue queue) {
    this.gpu = gpu;
    this.stream = stream;
    this.handle = handle.get();
    this.queue = queue;
  }

  void copy(DeviceBuffer target, DeviceBuffer source) {
    CudaBuffer to = device(target, "target");
    CudaBuffer from = device(source, "source");
    TransferChecks.requireApart(to.address(), from.address(), from.byteSize());
    copy(
        to,
        to.byteSize(),
        from,
        from.byteSize(),
        () -> Cuda.cuMemcpyAsync(to.address(), from.address(), from.byteSize(), handle),
        "cuMemcpyAsync");
  }

  void copy(DeviceBuffer target, PinnedBuffer source) {
    CudaBuffer to = device(target, "target");
    CudaPinnedBuffer from = pinned(source, "source");
    copy(
        to,
        to.byteSize(),
        from,
        from.byteSize(),
        () -> Cuda.cuMemcpyHtoDAsync_v2(to.address(), from.segment(), from.byteSize(), handle),
        "cuMemcpyHtoDAsync");
  }

  void copy(PinnedBuffer target, DeviceBuffer source) {
    CudaPinnedBuffer to = pinned(target, "target");
    CudaBuffer from = device(source, "source");
    copy(
        to,
        to.byteSize(),
        from,
        from.byteSize(),
        () -> Cuda.cuMemcpyDtoHAsync_v2(to.segment(), from.address(), from.byteSize(), handle),
        "cuMemcpyDtoHAsync");
  }

  private void copy(
      Resource target, long room, Resource source, long bytes, IntSupplier call, String name) {
    TransferChecks.requireRoom(room, bytes);
    stream.awaitRoom();
    enqueue(bytes == 0 ? null : call, name, target, source, CudaTransfer.COPY);
  }

  void fill(DeviceBuffer target, byte value) {
    CudaBuffer to = device(target, "target");
    stream.awaitRoom();
    enqueue(
        to.byteSize() == 0
            ? null
            : () -> Cuda.cuMemsetD8Async(to.address(), value, to.byteSize(), handle),
        "cuMemsetD8Async",
        to,
        null,
        CudaTransfer.FILL);
  }

  /** Launches a kernel; there is room for it. */
  void run(PtxKernel.Run kernel, IntSupplier launch) {
    enqueue(launch, "cuLaunchKernel", kernel, null, CudaTransfer.KERNEL);
  }

  private void enqueue(
      @Nullable IntSupplier call,
      String name,
      Resource target,
      @Nullable Resource source,
      String kind) {
    if (call != null) {
      try (Gpu.Scope ignored = gpu.enter()) {
        Driver.check(call.getAsInt(), name);
      }
    }
    Capture<CudaWork> capturing = stream.capture();
    if (capturing != null) {
      capturing.addTransfer(
          stream,
          new CudaTransfer(kind, source == null ? List.of(target) : List.of(target, source)));
      return;
    }
    queue.add(target, source);
  }

  private static CudaBuffer device(@Nullable DeviceBuffer buffer, String name) {
    CudaBuffer own = TransferChecks.device(buffer, name, CudaBuffer.class, Backend.CUDA);
    own.requireOpen();
    return own;
  }

  private static CudaPinnedBuffer pinned(@Nullable PinnedBuffer buffer, String name) {
    CudaPinnedBuffer own =
        TransferChecks.pinned(buffer, name, CudaPinnedBuffer.class, Backend.CUDA);
    TransferChecks.requireOpen(own.isClosed(), name);
    return own;
  }
}
