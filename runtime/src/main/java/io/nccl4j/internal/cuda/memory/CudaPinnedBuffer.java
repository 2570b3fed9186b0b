package io.nccl4j.internal.cuda.memory;

import io.nccl4j.InvalidUsageException;
import io.nccl4j.PinnedBuffer;
import io.nccl4j.internal.spi.Resource;
import io.nccl4j.memory.MemoryPurpose;
import java.lang.foreign.MemorySegment;
import java.util.concurrent.atomic.AtomicBoolean;

/** Page-locked host memory. It owns its block of the device's pinned heap. */
public final class CudaPinnedBuffer implements PinnedBuffer, Resource {
  private final DeviceMemory device;
  private final PinnedHeap.Block block;
  private final AtomicBoolean closed = new AtomicBoolean();

  public CudaPinnedBuffer(DeviceMemory device, long bytes) {
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

  @Override
  public boolean isPartOf(Object whole) {
    return this == whole;
  }

  @Override
  public boolean isClosed() {
    return closed.get();
  }

  @Override
  public void close() {
    if (closed.compareAndSet(false, true)) {
      device.whenUnused(this, () -> device.pinned().free(block));
    }
  }
}
