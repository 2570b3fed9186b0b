package io.nccl4j.internal.memory;

import java.util.Map;
import java.util.TreeMap;

/**
 * Divides a range of addresses: best fit, neighbours that become free are joined. Offsets and sizes
 * are in bytes. Not thread-safe.
 */
public final class RangeAllocator {
  private final TreeMap<Long, Long> freeByOffset = new TreeMap<>();
  private final TreeMap<Long, TreeMap<Long, Long>> freeBySize = new TreeMap<>();
  private long freeBytes;

  /** An allocator over the bytes from {@code start} to {@code end}. */
  public RangeAllocator(long start, long end) {
    insert(start, end - start);
  }

  /** Bytes that are not allocated. */
  public long freeBytes() {
    return freeBytes;
  }

  /** Bytes of the largest range that is not allocated. */
  public long largestFree() {
    return freeBySize.isEmpty() ? 0 : freeBySize.lastKey();
  }

  /**
   * Takes {@code size} bytes at a multiple of {@code alignment}.
   *
   * @param size more than 0
   * @param alignment a power of two
   * @return the offset, or −1 if there is no such room
   */
  public long allocate(long size, long alignment) {
    for (Map.Entry<Long, TreeMap<Long, Long>> candidates :
        freeBySize.tailMap(size, true).entrySet()) {
      for (long offset : candidates.getValue().keySet()) {
        long aligned = offset + alignment - 1 & -alignment;
        long length = candidates.getKey();
        if (aligned + size <= offset + length) {
          remove(offset, length);
          if (aligned > offset) {
            insert(offset, aligned - offset);
          }
          if (aligned + size < offset + length) {
            insert(aligned + size, offset + length - aligned - size);
          }
          return aligned;
        }
      }
    }
    return -1;
  }

  /** Gives back what {@link #allocate} returned. */
  public void free(long offset, long size) {
    long start = offset;
    long length = size;
    Map.Entry<Long, Long> before = freeByOffset.floorEntry(offset);
    if (before != null && before.getKey() + before.getValue() == offset) {
      start = before.getKey();
      length += before.getValue();
      remove(before.getKey(), before.getValue());
    }
    Long after = freeByOffset.get(offset + size);
    if (after != null) {
      length += after;
      remove(offset + size, after);
    }
    insert(start, length);
  }

  private void insert(long offset, long length) {
    freeByOffset.put(offset, length);
    freeBySize.computeIfAbsent(length, ignored -> new TreeMap<>()).put(offset, length);
    freeBytes += length;
  }

  private void remove(long offset, long length) {
    freeByOffset.remove(offset);
    TreeMap<Long, Long> sameSize = freeBySize.get(length);
    if (sameSize != null) {
      sameSize.remove(offset);
      if (sameSize.isEmpty()) {
        freeBySize.remove(length);
      }
    }
    freeBytes -= length;
  }
}
