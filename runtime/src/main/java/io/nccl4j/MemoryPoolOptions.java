package io.nccl4j;

/**
 * How a {@link MemoryPool} takes memory of its device.
 *
 * @param initialBytes taken at once, in one chunk; 0 for none
 * @param chunkBytes taken at a time later; a larger buffer gets a chunk of its own size
 * @param limitBytes the most that all chunks together may have
 */
public record MemoryPoolOptions(long initialBytes, long chunkBytes, long limitBytes) {
  /** Nothing at once, then 32 MiB at a time, without a limit. */
  public static final MemoryPoolOptions DEFAULTS =
      new MemoryPoolOptions(0, 32L << 20, Long.MAX_VALUE);

  /**
   * Checks them.
   *
   * @throws InvalidArgumentException if one is negative, the chunk empty, or the initial size above
   *     the limit
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

  /** The same with another initial size. */
  public MemoryPoolOptions withInitialBytes(long bytes) {
    return new MemoryPoolOptions(bytes, chunkBytes, limitBytes);
  }

  /** The same with another size of chunks. */
  public MemoryPoolOptions withChunkBytes(long bytes) {
    return new MemoryPoolOptions(initialBytes, bytes, limitBytes);
  }

  /** The same with another limit. */
  public MemoryPoolOptions withLimitBytes(long bytes) {
    return new MemoryPoolOptions(initialBytes, chunkBytes, bytes);
  }
}
