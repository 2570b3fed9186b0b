package io.nccl4j.internal.host.kernel;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SegmentAllocator;

/**
 * Memory that nobody can close, which vector kernels fold where it lies; the same for every test,
 * one after the other.
 */
final class LastingArena implements Arena {
  private static final long BYTES = 64 << 20;
  private static final MemorySegment POOL = Arena.global().allocate(BYTES, 4096);

  private final SegmentAllocator slices = SegmentAllocator.slicingAllocator(POOL);

  @Override
  public MemorySegment allocate(long bytes, long alignment) {
    return slices.allocate(bytes, alignment).fill((byte) 0);
  }

  @Override
  public MemorySegment.Scope scope() {
    return POOL.scope();
  }

  @Override
  public void close() {
    // The next one starts at the beginning again.
  }
}
