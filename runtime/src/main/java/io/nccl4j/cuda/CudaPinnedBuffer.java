package io.nccl4j.cuda;

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
    if (isClosed()) {
      return;
    }
    String user = device.streams().userOf(this);
    if (user != null) {
      throw new InvalidUsageException(
          "the pinned buffer is in use by " + user,
          "synchronize the stream before closing the buffer");
    }
    if (closed.compareAndSet(false, true)) {
      device.pinned().free(block);
    }
  }
}
