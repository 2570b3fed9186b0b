package io.nccl4j.internal.memory;

import io.nccl4j.DeviceBuffer;
import io.nccl4j.internal.spi.EngineStream;
import io.nccl4j.memory.MemoryPool;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.ArrayDeque;
import java.util.Arrays;
import org.jspecify.annotations.Nullable;

/**
 * What a pool has of one stream: blocks that its closed buffers left, by size, and the buffer
 * objects. The next buffer of the stream can have a block at once, since its works come after those
 * of the last one.
 *
 * <p>Used between {@link #enter()} and {@link #leave()}; there is almost never a second thread.
 *
 * @param <B> the backend's buffers
 */
final class PoolStream<B extends DeviceBuffer> {
  private static final VarHandle HELD;

  static {
    try {
      HELD = MethodHandles.lookup().findVarHandle(PoolStream.class, "held", int.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  private final EngineStream stream;
  private final @Nullable PoolBlock[] closed = new PoolBlock[SizeClass.COUNT];

  /** Closed buffers in the order of closing, and where the stream was. */
  private final ArrayDeque<B> buffers = new ArrayDeque<>();

  private long[] positions = new long[2 * MemoryPool.OLDEST];
  private int first;

  @SuppressWarnings("unused") // by VarHandle
  private int held;

  /** Buffers that are open. */
  long open;

  /** Bytes of blocks that are open. */
  long blockBytes;

  /** Bytes of blocks that are not. */
  long cachedBytes;

  /** Buffers allocated so far. */
  long allocations;

  PoolStream(EngineStream stream) {
    this.stream = stream;
  }

  EngineStream stream() {
    return stream;
  }

  void enter() {
    while (!HELD.compareAndSet(this, 0, 1)) {
      Thread.yield();
    }
  }

  void leave() {
    HELD.setRelease(this, 0);
  }

  /** Whether it has no block, open or closed. */
  boolean isEmpty() {
    return open == 0 && cachedBytes == 0;
  }

  /** A closed block of the class with this many bytes or more; null if there is none. */
  @Nullable PoolBlock take(int sizeClass, long bytes) {
    PoolBlock before = null;
    PoolBlock block = closed[sizeClass];
    while (block != null && block.size() < bytes) {
      before = block;
      block = block.next;
    }
    if (block != null) {
      if (before == null) {
        closed[sizeClass] = block.next;
      } else {
        before.next = block.next;
      }
      cachedBytes -= block.size();
    }
    return block;
  }

  /** Notes that a block is open. */
  void opened(PoolBlock block) {
    open++;
    blockBytes += block.size();
    allocations++;
  }

  /** Takes a block back, to be used again in the order of the stream. */
  void put(PoolBlock block) {
    int sizeClass = SizeClass.of(block.size());
    block.next = closed[sizeClass];
    closed[sizeClass] = block;
    open--;
    blockBytes -= block.size();
    cachedBytes += block.size();
  }

  /** Whether the stream has passed the last use of all closed blocks. */
  boolean isPassed() {
    long passed = stream.passed();
    for (PoolBlock first : closed) {
      for (PoolBlock block = first; block != null; block = block.next) {
        if (block.closedAt > passed) {
          return false;
        }
      }
    }
    return true;
  }

  /** Hands the blocks that the stream has passed to the pool. */
  void harvest(StreamPool<?> pool) {
    long passed = stream.passed();
    for (int i = 0; cachedBytes > 0 && i < closed.length; i++) {
      PoolBlock kept = null;
      for (PoolBlock block = closed[i]; block != null; ) {
        PoolBlock following = block.next;
        if (block.closedAt <= passed && pool.isFree(block)) {
          cachedBytes -= block.size();
          pool.giveBack(block);
        } else {
          block.next = kept;
          kept = block;
        }
        block = following;
      }
      closed[i] = kept;
    }
  }

  /**
   * The object of a buffer that was closed long ago, and whose works are done; null if there is
   * none.
   */
  @Nullable B takeBuffer() {
    if (buffers.size() < MemoryPool.OLDEST || positions[first] > stream.passed()) {
      return null;
    }
    first = first + 1 & positions.length - 1;
    return buffers.pollFirst();
  }

  void putBuffer(B buffer, long position) {
    int count = buffers.size();
    if (count == positions.length) {
      long[] more = Arrays.copyOfRange(positions, first, first + 2 * count);
      System.arraycopy(positions, 0, more, count - first, first);
      positions = more;
      first = 0;
    }
    positions[first + count & positions.length - 1] = position;
    buffers.addLast(buffer);
  }
}
