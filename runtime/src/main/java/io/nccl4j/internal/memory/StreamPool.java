package io.nccl4j.internal.memory;

import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.Stream;
import io.nccl4j.SystemErrorException;
import io.nccl4j.internal.spi.EngineStream;
import io.nccl4j.memory.MemoryPool;
import io.nccl4j.memory.MemoryPoolOptions;
import io.nccl4j.memory.MemoryPoolStatistics;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.jspecify.annotations.Nullable;

/**
 * A memory pool, but for where its chunks come from and what its buffers are.
 *
 * <p>A block moves in a circle: from a chunk's ranges to a buffer of a stream, at its close to the
 * stream's closed blocks, from there to the stream's next buffer of that size. When a stream finds
 * none, the blocks that streams have passed go back to the ranges, where neighbours join, and only
 * if that does not help the pool grows.
 *
 * @param <B> the backend's buffers
 */
public abstract class StreamPool<B extends DeviceBuffer> implements MemoryPool {
  private static final long ALIGNMENT = 4096;

  /** Blocks of this size and more are not rounded to a class, which would cost too much. */
  private static final long LARGE = 16L << 20;

  private static final long LARGE_MULTIPLE = 2L << 20;

  private final Device device;
  private final MemoryPoolOptions options;
  private final Map<Stream, PoolStream<B>> streams = new ConcurrentHashMap<>();
  private final List<PoolChunk> chunks = new ArrayList<>();
  private final AtomicLong used = new AtomicLong();
  private final AtomicLong peakUsed = new AtomicLong();
  private long reserved;
  private long peakReserved;
  private long pastAllocations;
  private volatile @Nullable PoolStream<B> recent;
  private volatile boolean closed;

  /** A pool without memory; see {@link #reserveInitial()}. */
  protected StreamPool(Device device, MemoryPoolOptions options) {
    if (options == null) {
      throw new InvalidArgumentException(
          "the options of the pool are null", "pass MemoryPoolOptions.DEFAULTS");
    }
    this.device = device;
    this.options = options;
  }

  // ---- of the backend

  /** Whether operations called on this thread are collected, and in no stream yet. */
  protected abstract boolean isGroupOpen();

  /** Runs {@code action} when those operations are in their streams, or are discarded. */
  protected abstract void afterGroups(Runnable action);

  /** Takes memory of the device: {@code bytes} or a little more. */
  protected abstract PoolChunk newChunk(long bytes);

  /** The object of a buffer, closed. */
  protected abstract B newBuffer();

  /** Makes a closed buffer stand for the first {@code bytes} bytes of a block. */
  protected abstract void open(B buffer, PoolBlock block, long bytes);

  /** Whether a rank that has failed may still write into a block. */
  protected boolean isInReach(PoolBlock block) {
    return false;
  }

  /** Whether a block that its stream has passed may become part of another one. */
  final boolean isFree(PoolBlock block) {
    return closed || !isInReach(block);
  }

  /** Takes the initial chunk. */
  protected final synchronized void reserveInitial() {
    if (options.initialBytes() > 0) {
      grow(options.initialBytes());
    }
  }

  /** The chunks there are. */
  public final synchronized List<PoolChunk> chunks() {
    requireOpen();
    return List.copyOf(chunks);
  }

  // ---- allocating

  @Override
  public final Device device() {
    return device;
  }

  @Override
  public final DeviceBuffer allocate(long bytes, Stream stream) {
    if (bytes < 0 || bytes > SizeClass.LARGEST) {
      throw new InvalidArgumentException(
          "cannot allocate " + bytes + " bytes", "pass a size from 0 to 2^48");
    }
    PoolStream<B> blocks = recent;
    if (blocks == null || blocks.stream() != stream) {
      blocks = blocksOf(stream);
    }
    blocks.stream().requireUsable();
    if (blocks.stream().isCapturing()) {
      throw new InvalidUsageException(
          "allocate: the stream is being captured, and a pool's memory is not part of a graph",
          "allocate before beginCapture");
    }
    long size = blockBytes(bytes);
    int sizeClass = SizeClass.of(size);
    blocks.enter();
    PoolBlock block = blocks.take(sizeClass, size);
    B buffer = blocks.takeBuffer();
    if (block == null) {
      // The pool's lock is never taken by who is in a stream's blocks.
      blocks.leave();
      block = refill(blocks, size);
      blocks.enter();
    }
    blocks.opened(block);
    blocks.leave();
    block.used = bytes;
    if (buffer == null) {
      buffer = newBuffer();
    }
    open(buffer, block, bytes);
    long now = used.addAndGet(bytes);
    if (now > peakUsed.getOpaque()) {
      peakUsed.accumulateAndGet(now, Math::max);
    }
    return buffer;
  }

  private static long blockBytes(long bytes) {
    return bytes > LARGE ? roundUp(bytes, LARGE_MULTIPLE) : SizeClass.bytes(SizeClass.of(bytes));
  }

  private PoolStream<B> blocksOf(@Nullable Stream stream) {
    if (!(stream instanceof EngineStream own) || own.device() != device) {
      throw new InvalidArgumentException(
          "the stream is " + (stream == null ? "null" : "not on " + device),
          "pass a stream of the pool's device");
    }
    PoolStream<B> blocks = streams.get(own);
    if (blocks == null) {
      requireOpen();
      blocks = streams.computeIfAbsent(own, ignored -> new PoolStream<>(own));
    }
    if (recent == null) {
      recent = blocks;
    }
    return blocks;
  }

  /** A block for a stream that has none closed of this size. */
  private synchronized PoolBlock refill(PoolStream<B> blocks, long size) {
    requireOpen();
    PoolBlock block = fromChunks(size);
    if (block == null) {
      harvest();
      block = fromChunks(size);
    }
    if (block == null) {
      grow(Math.max(size, options.chunkBytes()), size);
      block = Objects.requireNonNull(fromChunks(size), "a new chunk has room");
    }
    block.stream = blocks;
    return block;
  }

  private @Nullable PoolBlock fromChunks(long size) {
    long alignment = size % ALIGNMENT == 0 ? ALIGNMENT : 256;
    for (PoolChunk chunk : chunks) {
      if (chunk.ranges.freeBytes() >= size) {
        long offset = chunk.ranges.allocate(size, alignment);
        if (offset >= 0) {
          return chunk.newBlock(this, offset, size);
        }
      }
    }
    return null;
  }

  /** Grows by what it should, or where there is not so much, by what it must. */
  private void grow(long wanted, long least) {
    long room = options.limitBytes() - reserved;
    if (least > room && trimTo(Math.max(0, options.limitBytes() - least)) > 0) {
      room = options.limitBytes() - reserved;
    }
    if (least > room) {
      throw new SystemErrorException(
          "cannot allocate "
              + least
              + " bytes: the pool of "
              + device
              + " holds "
              + reserved
              + " of at most "
              + options.limitBytes()
              + " bytes, "
              + used
              + " of them in use",
          "close buffers, synchronize their streams, or raise the limit");
    }
    try {
      grow(Math.min(wanted, room));
    } catch (SystemErrorException e) {
      long freed = trimTo(0);
      if (wanted == least && freed == 0) {
        throw e;
      }
      grow(least);
    }
  }

  private void grow(long bytes) {
    PoolChunk chunk = newChunk(bytes);
    chunks.add(chunk);
    reserved += chunk.bytes();
    peakReserved = Math.max(peakReserved, reserved);
  }

  // ---- closing

  /**
   * Takes a closed buffer's block back, behind all that was called for its stream before. A graph
   * that captured the buffer cannot be launched any more.
   */
  void close(PoolBlock block, DeviceBuffer buffer, boolean isReusable) {
    if (isGroupOpen()) {
      // A capture in the group may come to know the buffer only when the group ends.
      afterGroups(() -> takeBack(block, buffer, false));
    } else {
      takeBack(block, buffer, isReusable);
    }
  }

  private void takeBack(PoolBlock block, DeviceBuffer buffer, boolean isReusable) {
    @SuppressWarnings("unchecked") // blocks and buffers of a pool are of its kind
    PoolStream<B> blocks = (PoolStream<B>) block.stream();
    @SuppressWarnings("unchecked")
    B own = (B) buffer;
    long position = blocks.stream().position();
    blocks.enter();
    try {
      block.closedAt = position;
      blocks.put(block);
      if (isReusable) {
        blocks.putBuffer(own, position);
      }
      used.addAndGet(-block.used);
    } finally {
      blocks.leave();
    }
  }

  /** Takes a block that no stream uses; under the lock of the pool. */
  void giveBack(PoolBlock block) {
    block.chunk().ranges.free(block.offset(), block.size());
  }

  /** Joins what streams have passed. */
  private void harvest() {
    for (Iterator<PoolStream<B>> i = streams.values().iterator(); i.hasNext(); ) {
      PoolStream<B> blocks = i.next();
      blocks.stream().learnPassed();
      blocks.enter();
      blocks.harvest(this);
      boolean isOver = blocks.isEmpty() && blocks.stream().isClosed();
      blocks.leave();
      if (isOver) {
        pastAllocations += blocks.allocations;
        i.remove();
        if (recent == blocks) {
          recent = null;
        }
      }
    }
  }

  @Override
  public final synchronized long trim(long keepBytes) {
    if (keepBytes < 0) {
      throw new InvalidArgumentException(
          "trim: " + keepBytes + " bytes are to be kept", "pass 0 or more");
    }
    requireOpen();
    harvest();
    return trimTo(keepBytes);
  }

  private long trimTo(long keepBytes) {
    long before = reserved;
    NcclException failure = null;
    for (int i = chunks.size() - 1; i >= 0 && reserved > keepBytes; i--) {
      PoolChunk chunk = chunks.get(i);
      if (chunk.ranges.freeBytes() == chunk.bytes() && !chunk.isHeld()) {
        chunks.remove(i);
        reserved -= chunk.bytes();
        try {
          chunk.free();
        } catch (NcclException e) {
          failure = failure == null ? e : failure;
        }
      }
    }
    if (failure != null) {
      throw failure;
    }
    return before - reserved;
  }

  @Override
  public final synchronized MemoryPoolStatistics statistics() {
    long open = 0;
    long blockBytes = 0;
    long cached = 0;
    long allocations = pastAllocations;
    for (PoolStream<B> blocks : streams.values()) {
      blocks.enter();
      open += blocks.open;
      blockBytes += blocks.blockBytes;
      cached += blocks.cachedBytes;
      allocations += blocks.allocations;
      blocks.leave();
    }
    long free = 0;
    long largest = 0;
    for (PoolChunk chunk : chunks) {
      free += chunk.ranges.freeBytes();
      largest = Math.max(largest, chunk.ranges.largestFree());
    }
    return new MemoryPoolStatistics(
        open,
        used.get(),
        peakUsed.get(),
        blockBytes,
        cached,
        free,
        largest,
        reserved,
        peakReserved,
        chunks.size(),
        allocations);
  }

  @Override
  public final synchronized void close() {
    if (closed) {
      return;
    }
    harvest();
    MemoryPoolStatistics now = statistics();
    if (now.openBuffers() > 0) {
      throw refusal(now.openBuffers() + " of its buffers are open", "close its buffers before it");
    }
    if (!allPassed()) {
      throw refusal(
          "streams have not passed the last use of " + now.cachedBytes() + " bytes",
          "synchronize the streams that used it before closing it");
    }
    if (chunks.stream().anyMatch(PoolChunk::isHeld)) {
      throw refusal(
          "chunks are registered with a communicator",
          "close their registrations and windows, or the communicators, before it");
    }
    closed = true;
    // What peers of a failed communicator may touch, too: a chunk waits for them when it is freed.
    harvest();
    recent = null;
    streams.clear();
    trimTo(0);
  }

  private boolean allPassed() {
    for (PoolStream<B> blocks : streams.values()) {
      blocks.enter();
      boolean passed = blocks.isPassed();
      blocks.leave();
      if (!passed) {
        return false;
      }
    }
    return true;
  }

  private InvalidUsageException refusal(String why, String remedy) {
    return new InvalidUsageException("close of a pool of " + device + ": " + why, remedy);
  }

  private void requireOpen() {
    if (closed) {
      throw new InvalidUsageException(
          "the memory pool is closed", "create a new one with MemoryPool.create(device)");
    }
  }

  private static long roundUp(long value, long multiple) {
    return (value + multiple - 1) / multiple * multiple;
  }
}
