package io.nccl4j.internal.cuda.memory;

import io.nccl4j.SystemErrorException;
import io.nccl4j.bindings.MemoryAccess;
import io.nccl4j.bindings.cuda.Cuda;
import io.nccl4j.internal.cuda.driver.Driver;
import io.nccl4j.internal.cuda.driver.Gpu;
import io.nccl4j.internal.memory.RangeAllocator;
import io.nccl4j.internal.spi.MemoryBook;
import io.nccl4j.memory.MemoryPlace;
import io.nccl4j.memory.MemoryPurpose;
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
  record Block(MemorySegment segment, Chunk chunk, long size, MemoryBook.Booking booking) {}

  /** Memory that CUDA locked, divided by address. */
  record Chunk(long address, RangeAllocator ranges, MemoryBook.Booking unused) {}

  private static final long ALIGNMENT = 256;
  private static final long CHUNK_BYTES = 4L << 20;
  private static final int PORTABLE = 1;

  private final Gpu gpu;
  private final MemoryBook.Account account;
  private final List<Chunk> chunks = new ArrayList<>();

  PinnedHeap(Gpu gpu, MemoryBook.Account account) {
    this.gpu = gpu;
    this.account = account;
  }

  synchronized Block allocate(MemoryPurpose purpose, long bytes) {
    long size = (Math.max(bytes, 1) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    for (Chunk chunk : chunks) {
      long address = chunk.ranges.allocate(size, ALIGNMENT);
      if (address >= 0) {
        return block(chunk, address, bytes, size, purpose);
      }
    }
    Chunk chunk = newChunk(Math.max(size, CHUNK_BYTES));
    chunks.add(chunk);
    return block(chunk, chunk.ranges.allocate(size, ALIGNMENT), bytes, size, purpose);
  }

  synchronized void free(Block block) {
    Chunk chunk = block.chunk;
    chunk.ranges.free(block.segment.address(), block.size);
    block.booking.release();
    chunk.unused.resize(chunk.ranges.freeBytes());
  }

  private Block block(Chunk chunk, long address, long bytes, long size, MemoryPurpose purpose) {
    chunk.unused.resize(chunk.ranges.freeBytes());
    MemoryBook.Booking booking = account.book(purpose, MemoryPlace.PINNED, size);
    return new Block(MemoryAccess.ofAddress(address, bytes), chunk, size, booking);
  }

  private Chunk newChunk(long bytes) {
    try (Gpu.Scope ignored = gpu.enter();
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
      RangeAllocator ranges = new RangeAllocator(address, address + bytes);
      return new Chunk(
          address, ranges, account.book(MemoryPurpose.UNUSED, MemoryPlace.PINNED, bytes));
    }
  }
}
