package io.nccl4j.internal.cuda;

import io.nccl4j.InvalidUsageException;
import io.nccl4j.MemoryPurpose;
import io.nccl4j.PinnedBuffer;
import java.lang.foreign.MemorySegment;
import java.util.concurrent.atomic.AtomicBoolean;

/** Page-locked host memory. It owns its block of the device's pinned heap. */
final class CudaPinnedBuffer implements PinnedBuffer {
  private final CudaDevice device;
  private final PinnedHeap.Block block;
  private final AtomicBoolean closed = new AtomicBoolean();

  CudaPinnedBuffer(CudaDevice device, long bytes) {
    this.device = device;
    this.block = device.pinned().allocate(MemoryPurpose.USER, bytes);
  }

  @Override
  public MemorySegment segment() {
    if (isClosed()) {
      throw new InvalidUsageException(
          "the pinned buffer is closed", "keep it open until its last use");
    }
    return block.segment();
  }

  @Override
  public long byteSize() {
    return block.segment().byteSize();
  }

  boolean isClosed() {
    return closed.get();
  }

  @Override
  public void close() {
    if (closed.compareAndSet(false, true)) {
      device.whenUnused(this, () -> device.pinned().free(block));
    }
  }
}
