package io.nccl4j.memory;

import io.nccl4j.InvalidArgumentException;

/**
 * How a {@link MemoryPool} takes memory from its device.
 *
 * @param initialBytes taken at once, in one chunk; 0 for none
 * @param chunkBytes taken at a time later; a larger buffer gets a chunk of its own size
 * @param limitBytes maximum size of all chunks together
 */
public record MemoryPoolOptions(long initialBytes, long chunkBytes, long limitBytes) {
  /** Nothing at once, then 32 MiB at a time, without a limit. */
  public static final MemoryPoolOptions DEFAULTS =
      new MemoryPoolOptions(0, 32L << 20, Long.MAX_VALUE);

  /**
   * Checks the sizes.
   *
   * @throws InvalidArgumentException if a size is negative, the chunk size 0, or the initial size
   *     above the limit
   */
  public MemoryPoolOptions {
    if (initialBytes < 0 || chunkBytes < 1 || initialBytes > limitBytes) {
      throw new InvalidArgumentException(
          "the pool's sizes are "
              + initialBytes
              + " initial, "
              + chunkBytes
              + " a chunk, at most "
              + limitBytes
              + " bytes",
          "pass an initial size from 0 to the limit, and chunks of 1 byte or more");
    }
  }

  /** A copy with another initial size. */
  public MemoryPoolOptions withInitialBytes(long bytes) {
    return new MemoryPoolOptions(bytes, chunkBytes, limitBytes);
  }

  /** A copy with another chunk size. */
  public MemoryPoolOptions withChunkBytes(long bytes) {
    return new MemoryPoolOptions(initialBytes, bytes, limitBytes);
  }

  /** A copy with another limit. */
  public MemoryPoolOptions withLimitBytes(long bytes) {
    return new MemoryPoolOptions(initialBytes, chunkBytes, bytes);
  }
}
