package io.nccl4j.internal.memory;

/** Memory of a device that a pool divides into blocks. */
public abstract class PoolChunk {
  /** Its address range; under the pool's lock. */
  final RangeAllocator ranges;

  private final long bytes;

  /**
   * A chunk without blocks.
   *
   * @param start its first byte, as the backend counts; a multiple of 4096
   * @param bytes its size
   */
  protected PoolChunk(long start, long bytes) {
    this.bytes = bytes;
    ranges = new RangeAllocator(start, start + bytes);
  }

  /** Its size. */
  public final long bytes() {
    return bytes;
  }

  /** A block of this chunk, which the pool owns. */
  protected abstract PoolBlock newBlock(StreamPool<?> pool, long offset, long size);

  /** Whether it must stay although no block is in use: a communicator has it registered. */
  protected boolean isHeld() {
    return false;
  }

  /** Gives the memory back as soon as no peer can touch it; this process does not any more. */
  protected abstract void free();
}
