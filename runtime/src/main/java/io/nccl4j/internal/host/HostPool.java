package io.nccl4j.internal.host;

import io.nccl4j.MemoryPoolOptions;
import io.nccl4j.MemoryPurpose;
import io.nccl4j.Stream;
import io.nccl4j.internal.memory.PoolBlock;
import io.nccl4j.internal.memory.PoolChunk;
import io.nccl4j.internal.memory.StreamPool;
import io.nccl4j.internal.schedule.GroupScope;
import io.nccl4j.internal.spi.EngineStream;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/**
 * A pool over the heap. Its chunks are blocks of the heap, so that peers reach its buffers like all
 * others, without copies.
 */
final class HostPool extends StreamPool<HostBuffer> {
  private static final long PAGE = 4096;

  private final HostDevice device;
  private final HostHeap heap = HostProcess.self().heap();

  private HostPool(HostDevice device, MemoryPoolOptions options) {
    super(device, options);
    this.device = device;
  }

  static HostPool open(HostDevice device, MemoryPoolOptions options) {
    HostPool pool = new HostPool(device, options);
    pool.reserveInitial();
    return pool;
  }

  private final class Chunk extends PoolChunk {
    private final HostHeap.Block memory;

    Chunk(HostHeap.Block memory) {
      super(memory.offset(), memory.bytes());
      this.memory = memory;
    }

    private long address() {
      return memory.segment().address() + memory.offset();
    }

    @Override
    protected PoolBlock newBlock(StreamPool<?> pool, long offset, long size) {
      return new PoolBlock(pool, this, offset, size);
    }

    @Override
    protected void free() {
      heap.free(memory, HostProcess.self().quarantine().whenUntouched(address(), memory.bytes()));
    }
  }

  @Override
  protected @Nullable EngineStream<?> engineStream(@Nullable Stream stream) {
    return stream instanceof HostStream own ? own : null;
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
    long start = ((Chunk) block.chunk()).memory.segment().address() + block.offset();
    return !HostProcess.self().quarantine().isUntouched(start, block.size());
  }

  @Override
  protected PoolChunk newChunk(long bytes) {
    return new Chunk(device.allocate(MemoryPurpose.POOL, bytes + PAGE - 1 & -PAGE));
  }

  @Override
  protected HostBuffer newBuffer() {
    return new HostBuffer(device, MemorySegment.NULL, heap.isShareable());
  }

  @Override
  protected void open(HostBuffer buffer, PoolBlock block, long bytes) {
    buffer.open(block, ((Chunk) block.chunk()).memory.segment(), bytes);
  }
}
