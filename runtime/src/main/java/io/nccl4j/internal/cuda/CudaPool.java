package io.nccl4j.internal.cuda;

import io.nccl4j.InvalidArgumentException;
import io.nccl4j.MemoryPlace;
import io.nccl4j.MemoryPool;
import io.nccl4j.MemoryPoolOptions;
import io.nccl4j.MemoryPurpose;
import io.nccl4j.Stream;
import io.nccl4j.internal.memory.DeviceBudget;
import io.nccl4j.internal.memory.PoolBlock;
import io.nccl4j.internal.memory.PoolChunk;
import io.nccl4j.internal.memory.StreamPool;
import io.nccl4j.internal.schedule.GroupScope;
import io.nccl4j.internal.spi.EngineStream;
import io.nccl4j.internal.spi.MemoryBook;
import java.lang.foreign.MemorySegment;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** A pool of a GPU's memory. Communicators register its chunks, once, instead of its buffers. */
final class CudaPool extends StreamPool<CudaBuffer> {
  private final CudaDevice device;

  private CudaPool(CudaDevice device, MemoryPoolOptions options) {
    super(device, options);
    this.device = device;
  }

  static CudaPool open(CudaDevice device, MemoryPoolOptions options) {
    CudaPool pool = new CudaPool(device, options);
    pool.reserveInitial();
    return pool;
  }

  static CudaPool require(@Nullable MemoryPool pool, CudaDevice device, String call) {
    if (!(pool instanceof CudaPool own) || own.device != device) {
      throw new InvalidArgumentException(
          call + ": the pool is " + (pool == null ? "null" : "not of " + device),
          "create it with communicator.device().newMemoryPool()");
    }
    return own;
  }

  /** All chunks, as buffers that are never closed. */
  List<CudaBuffer> buffers() {
    return chunks().stream().map(chunk -> ((Chunk) chunk).whole).toList();
  }

  /** Mapped memory, and the buffer by which communicators register it. */
  private static final class Chunk extends PoolChunk {
    private final CudaMapping memory;
    private final MemoryBook.Booking booking;
    private final CudaBuffer whole;

    Chunk(CudaDevice device, CudaMapping memory) {
      super(memory.address(), memory.bytes());
      this.memory = memory;
      this.booking = device.account().book(MemoryPurpose.POOL, MemoryPlace.DEVICE, memory.bytes());
      this.whole = CudaBuffer.chunk(device, memory, booking);
    }

    @Override
    protected PoolBlock newBlock(StreamPool<?> pool, long offset, long size) {
      return new Block(pool, this, offset, size);
    }

    @Override
    protected boolean isHeld() {
      return whole.isHeld();
    }

    @Override
    protected void free() {
      booking.release();
      memory.free();
    }
  }

  /** A block, and its address as native calls take it. */
  private static final class Block extends PoolBlock {
    private final MemorySegment pointer;

    Block(StreamPool<?> pool, Chunk chunk, long address, long size) {
      super(pool, chunk, address, size);
      pointer = MemorySegment.ofAddress(address);
    }
  }

  @Override
  protected @Nullable EngineStream<?> engineStream(@Nullable Stream stream) {
    return stream instanceof CudaStream own ? own : null;
  }

  @Override
  protected boolean isGroupOpen() {
    return GroupScope.isOpen();
  }

  @Override
  protected void afterGroups(Runnable action) {
    GroupScope.afterGroups(action);
  }

  @Override
  protected PoolChunk newChunk(long bytes) {
    return DeviceBudget.allocate(
        device,
        bytes,
        device::takenBytes,
        () -> new Chunk(device, CudaMapping.create(device, bytes)));
  }

  @Override
  protected CudaBuffer newBuffer() {
    return CudaBuffer.ofPool(device);
  }

  @Override
  protected void open(CudaBuffer buffer, PoolBlock block, long bytes) {
    buffer.open(block, ((Block) block).pointer, bytes);
  }
}
