package io.nccl4j.internal.cuda.memory;

import io.nccl4j.SystemErrorException;
import io.nccl4j.internal.cuda.driver.Gpu;
import io.nccl4j.internal.memory.RangeAllocator;
import io.nccl4j.internal.spi.MemoryBook;
import io.nccl4j.memory.MemoryPlace;
import io.nccl4j.memory.MemoryPurpose;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * Memory of one GPU: chunks, and blocks in them. It owns the chunks; one that becomes empty is
 * given back, except the last. Thread-safe.
 */
public final class CudaHeap {
  /** A part of a chunk, and whose it is. */
  record Block(Chunk chunk, long address, long bytes, MemoryBook.Booking booking) {}

  /** Mapped memory, divided by address; what is in no block is booked as unused. */
  record Chunk(CudaMapping memory, RangeAllocator ranges, MemoryBook.Booking unused) {
    @Nullable Block take(long size, MemoryBook.Account account, MemoryPurpose purpose) {
      long start = ranges.allocate(size, ALIGNMENT);
      if (start < 0) {
        return null;
      }
      unused.resize(ranges.freeBytes());
      return new Block(this, start, size, account.book(purpose, MemoryPlace.DEVICE, size));
    }

    boolean isUnused() {
      return ranges.freeBytes() == memory.bytes();
    }

    void give(Block block) {
      ranges.free(block.address, block.bytes);
      block.booking.release();
      unused.resize(ranges.freeBytes());
    }
  }

  /** Every block starts at a multiple of this, which NCCL asks of windows. */
  public static final long ALIGNMENT = 4096;

  /** The first chunk is small: it holds the flags of communicators, and often nothing else. */
  static final long FIRST_CHUNK_BYTES = 2L << 20;

  private static final long CHUNK_BYTES = 32L << 20;

  private final Gpu gpu;
  private final MemoryBook.Account unbooked;
  private final List<Chunk> chunks = new ArrayList<>();

  /**
   * The heap of a GPU.
   *
   * @param unbooked whose memory is that is in no block
   */
  CudaHeap(Gpu gpu, MemoryBook.Account unbooked) {
    this.gpu = gpu;
    this.unbooked = unbooked;
  }

  /**
   * Takes memory.
   *
   * @param account whose it is
   * @throws SystemErrorException if there is not so much
   */
  synchronized Block allocate(MemoryBook.Account account, MemoryPurpose purpose, long bytes) {
    if (bytes > Long.MAX_VALUE - CHUNK_BYTES) {
      throw new SystemErrorException(
          "cannot allocate " + bytes + " bytes on " + gpu, "allocate less");
    }
    long size = MemoryCalls.roundUp(Math.max(bytes, 1), ALIGNMENT);
    for (Chunk chunk : chunks) {
      Block block = chunk.take(size, account, purpose);
      if (block != null) {
        return block;
      }
    }
    Chunk chunk = newChunk(size);
    chunks.add(chunk);
    return Objects.requireNonNull(chunk.take(size, account, purpose));
  }

  /** Whether it has taken nothing from the device yet. */
  public synchronized boolean isEmpty() {
    return chunks.isEmpty();
  }

  /** Gives back to the device what is in no block, the last chunk, too. */
  public synchronized void trim() {
    for (Chunk chunk : List.copyOf(chunks)) {
      if (chunk.isUnused()) {
        remove(chunk);
      }
    }
  }

  private void remove(Chunk chunk) {
    chunks.remove(chunk);
    chunk.unused.release();
    chunk.memory.free();
  }

  /** Gives a block back; nothing uses it any more. */
  synchronized void free(Block block) {
    Chunk chunk = block.chunk;
    chunk.give(block);
    if (chunk.isUnused() && chunks.size() > 1) {
      remove(chunk);
    }
  }

  private Chunk newChunk(long size) {
    long least = chunks.isEmpty() ? FIRST_CHUNK_BYTES : CHUNK_BYTES;
    try {
      return map(Math.max(size, least));
    } catch (SystemErrorException e) {
      if (size >= least) {
        throw e;
      }
      return map(size);
    }
  }

  private Chunk map(long size) {
    CudaMapping memory = CudaMapping.create(gpu, size);
    long start = memory.address();
    MemoryBook.Booking unused =
        unbooked.book(MemoryPurpose.UNUSED, MemoryPlace.DEVICE, memory.bytes());
    return new Chunk(memory, new RangeAllocator(start, start + memory.bytes()), unused);
  }
}
