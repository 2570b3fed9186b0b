package io.nccl4j.cuda;

import io.nccl4j.SystemErrorException;
import io.nccl4j.bindings.MemoryAccess;
import io.nccl4j.bindings.cuda.Cuda;
import io.nccl4j.memory.RangeAllocator;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.List;

/**
 * Page-locked host memory: chunks that stay until the process ends, since unlocking one waits for
 * the device and would deadlock with a collective that waits for another rank. Thread-safe.
 */
@SuppressWarnings("try") // a scope is entered, not used
final class PinnedHeap {
  /** A part of a chunk. */
  record Block(MemorySegment segment, Chunk chunk, long size) {}

  /** Memory that CUDA locked, divided by address. */
  record Chunk(long address, RangeAllocator ranges) {}

  private static final long ALIGNMENT = 256;
  private static final long CHUNK_BYTES = 4L << 20;
  private static final int PORTABLE = 1;

  private final CudaDevice device;
  private final List<Chunk> chunks = new ArrayList<>();

  PinnedHeap(CudaDevice device) {
    this.device = device;
  }

  synchronized Block allocate(long bytes) {
    long size = (Math.max(bytes, 1) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    for (Chunk chunk : chunks) {
      long address = chunk.ranges.allocate(size, ALIGNMENT);
      if (address >= 0) {
        return block(chunk, address, bytes, size);
      }
    }
    Chunk chunk = newChunk(Math.max(size, CHUNK_BYTES));
    chunks.add(chunk);
    return block(chunk, chunk.ranges.allocate(size, ALIGNMENT), bytes, size);
  }

  synchronized void free(Block block) {
    block.chunk.ranges.free(block.segment.address(), block.size);
  }

  private static Block block(Chunk chunk, long address, long bytes, long size) {
    return new Block(MemoryAccess.ofAddress(address, bytes), chunk, size);
  }

  private Chunk newChunk(long bytes) {
    try (CudaDevice.Scope ignored = device.enter();
        Arena arena = Arena.ofConfined()) {
      MemorySegment out = arena.allocate(ValueLayout.ADDRESS);
      int result = Cuda.cuMemHostAlloc(out, bytes, PORTABLE);
      if (result == Driver.OUT_OF_MEMORY) {
        throw new SystemErrorException(
            "cannot allocate " + bytes + " bytes of page-locked host memory: cuMemHostAlloc failed",
            "free host memory or raise ulimit -l, or allocate less");
      }
      Driver.check(result, "cuMemHostAlloc");
      long address = out.get(ValueLayout.ADDRESS, 0).address();
      return new Chunk(address, new RangeAllocator(address, address + bytes));
    }
  }
}
