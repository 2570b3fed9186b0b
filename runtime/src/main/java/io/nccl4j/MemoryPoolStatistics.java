package io.nccl4j;

/**
 * What a {@link MemoryPool} holds. Taken while other threads allocate, the figures need not be of
 * the same instant.
 *
 * @param openBuffers buffers that are not closed
 * @param usedBytes bytes asked for by them
 * @param peakUsedBytes the most that was ever in use
 * @param blockBytes bytes taken by them, with what rounding adds
 * @param cachedBytes bytes of closed buffers, kept for the next buffers of their streams
 * @param freeBytes bytes of chunks that any stream can have
 * @param largestFreeBytes the largest of them in one piece
 * @param reservedBytes bytes of all chunks: the three above together
 * @param peakReservedBytes the most that was ever reserved
 * @param chunks pieces in which the pool took memory of the device
 * @param allocations buffers allocated so far
 */
public record MemoryPoolStatistics(
    long openBuffers,
    long usedBytes,
    long peakUsedBytes,
    long blockBytes,
    long cachedBytes,
    long freeBytes,
    long largestFreeBytes,
    long reservedBytes,
    long peakReservedBytes,
    int chunks,
    long allocations) {
  /**
   * How far the free memory is in pieces: 0 if it is one piece, or there is none, towards 1 the
   * smaller its largest piece is.
   */
  public double fragmentation() {
    return freeBytes == 0 ? 0 : 1 - (double) largestFreeBytes / freeBytes;
  }
}
