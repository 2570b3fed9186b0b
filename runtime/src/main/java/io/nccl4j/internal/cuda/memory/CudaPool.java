package io.nccl4j.internal.cuda.memory;

import io.nccl4j.InvalidArgumentException;
import io.nccl4j.internal.memory.DeviceBudget;
import io.nccl4j.internal.memory.PoolBlock;
import io.nccl4j.internal.memory.PoolChunk;
import io.nccl4j.internal.memory.StreamPool;
import io.nccl4j.internal.schedule.GroupScope;
import io.nccl4j.internal.spi.MemoryBook;
import io.nccl4j.memory.MemoryPlace;
import io.nccl4j.memory.MemoryPool;
import io.nccl4j.memory.MemoryPoolOptions;
import io.nccl4j.memory.MemoryPurpose;
import java.lang.foreign.MemorySegment;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** A pool of a GPU's memory. Communicators register its chunks, once, instead of its buffers. */
public final class CudaPool extends StreamPool<CudaBuffer> {
  private final DeviceMemory memory;

  private CudaPool(DeviceMemory memory, MemoryPoolOptions options) {
    super(memory.device(), options);
    this.memory = memory;
  }

  /** A pool of the device whose memory that is. */
  public static CudaPool open(DeviceMemory memory, MemoryPoolOptions options) {
    CudaPool pool = new CudaPool(memory, options);
    pool.reserveInitial();
    return pool;
  }

  /** The pool as one of the device whose memory that is; throws if it is none. */
  public static CudaPool require(@Nullable MemoryPool pool, DeviceMemory memory, String call) {
    if (!(pool instanceof CudaPool own) || own.memory != memory) {
      throw new InvalidArgumentException(
          call + ": the pool is " + (pool == null ? "null" : "not of " + memory),
          "create it with MemoryPool.create(communicator.device())");
    }
    return own;
  }

  /** All chunks, as buffers that are never closed. */
  public List<CudaBuffer> buffers() {
    return chunks().stream().map(chunk -> ((Chunk) chunk).whole).toList();
  }

  /** Mapped memory, and the buffer by which communicators register it. */
  private static final class Chunk extends PoolChunk {
    private final CudaMapping memory;
    private final MemoryBook.Booking booking;
    private final CudaBuffer whole;

    Chunk(DeviceMemory device, CudaMapping memory) {
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
        device(),
        bytes,
        memory::takenBytes,
        () -> new Chunk(memory, CudaMapping.create(memory.gpu(), bytes)));
  }

  @Override
  protected CudaBuffer newBuffer() {
    return CudaBuffer.ofPool(memory);
  }

  @Override
  protected void open(CudaBuffer buffer, PoolBlock block, long bytes) {
    buffer.open(block, ((Block) block).pointer, bytes);
  }
}
