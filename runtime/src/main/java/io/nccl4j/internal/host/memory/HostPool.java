package io.nccl4j.internal.host.memory;

import io.nccl4j.internal.memory.PoolBlock;
import io.nccl4j.internal.memory.PoolChunk;
import io.nccl4j.internal.memory.StreamPool;
import io.nccl4j.internal.schedule.GroupScope;
import io.nccl4j.memory.MemoryPoolOptions;
import io.nccl4j.memory.MemoryPurpose;
import java.lang.foreign.MemorySegment;

/**
 * A pool over the heap. Its chunks are blocks of the heap, so that peers reach its buffers like all
 * others, without copies.
 */
public final class HostPool extends StreamPool<HostBuffer> {
  private static final long PAGE = 4096;

  private final DeviceMemory memory;
  private final HostHeap heap = ProcessMemory.self().heap();

  private HostPool(DeviceMemory memory, MemoryPoolOptions options) {
    super(memory.device(), options);
    this.memory = memory;
  }

  public static HostPool open(DeviceMemory memory, MemoryPoolOptions options) {
    HostPool pool = new HostPool(memory, options);
    pool.reserveInitial();
    return pool;
  }

  private final class Chunk extends PoolChunk {
    private final HostHeap.Block own;

    Chunk(HostHeap.Block own) {
      super(own.offset(), own.bytes());
      this.own = own;
    }

    private long address() {
      return own.segment().address() + own.offset();
    }

    @Override
    protected PoolBlock newBlock(StreamPool<?> pool, long offset, long size) {
      return new PoolBlock(pool, this, offset, size);
    }

    @Override
    protected void free() {
      heap.free(own, ProcessMemory.self().quarantine().whenUntouched(address(), own.bytes()));
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
  protected boolean isInReach(PoolBlock block) {
    long start = ((Chunk) block.chunk()).own.segment().address() + block.offset();
    return !ProcessMemory.self().quarantine().isUntouched(start, block.size());
  }

  @Override
  protected PoolChunk newChunk(long bytes) {
    return new Chunk(
        memory.allocate(memory.account(), MemoryPurpose.POOL, bytes + PAGE - 1 & -PAGE));
  }

  @Override
  protected HostBuffer newBuffer() {
    return new HostBuffer(memory.device(), MemorySegment.NULL, heap.isShareable());
  }

  @Override
  protected void open(HostBuffer buffer, PoolBlock block, long bytes) {
    buffer.open(block, ((Chunk) block.chunk()).own.segment(), bytes);
  }
}
