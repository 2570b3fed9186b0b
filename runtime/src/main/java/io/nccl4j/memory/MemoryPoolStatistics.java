package io.nccl4j.memory;

/**
 * What a {@link MemoryPool} holds. If other threads allocate meanwhile, the figures may be from
 * slightly different moments.
 *
 * @param openBuffers buffers that are not closed
 * @param usedBytes bytes requested by them
 * @param peakUsedBytes the most bytes ever in use
 * @param blockBytes bytes taken by them, including rounding
 * @param cachedBytes bytes of closed buffers, kept for the next buffers of their streams
 * @param freeBytes bytes of chunks available to any stream
 * @param largestFreeBytes the largest contiguous free piece
 * @param reservedBytes bytes of all chunks: the three above together
 * @param peakReservedBytes the most bytes ever reserved
 * @param chunks number of chunks taken from the device
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
   * How fragmented the free memory is: 0 if it is one piece, or there is none; closer to 1 the
   * smaller its largest piece is.
   */
  public double fragmentation() {
    return freeBytes == 0 ? 0 : 1 - (double) largestFreeBytes / freeBytes;
  }
}
