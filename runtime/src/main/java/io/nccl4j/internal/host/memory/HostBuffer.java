package io.nccl4j.internal.host.memory;

import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.bindings.MemoryAccess;
import io.nccl4j.internal.memory.PoolBlock;
import io.nccl4j.internal.spi.BackendBuffer;
import io.nccl4j.internal.spi.NativeSegments;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.Optional;
import org.jspecify.annotations.Nullable;

/**
 * Memory of a host device: a block of the heap or of a pool, a caller's segment, or a slice of one
 * of these.
 *
 * <p>The block, if there is one, is owned by the buffer that was allocated, not by its slices. A
 * pool uses its buffers again for other blocks, when all works with them are done.
 */
public final class HostBuffer implements BackendBuffer {
  private static final VarHandle CLOSED;

  static {
    try {
      CLOSED = MethodHandles.lookup().findVarHandle(HostBuffer.class, "closed", boolean.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  private final Device device;
  private final boolean shared;
  private final boolean readOnly;

  /** The allocated or wrapped buffer this one is a part of, or this one. */
  private final HostBuffer root;

  private final HostHeap.@Nullable Block block;
  private MemorySegment segment;
  private long offset;
  private long bytes;
  private @Nullable PoolBlock pooled;

  /** How often a pool has used the root again; a slice's is that of its making. */
  private int generation;

  /** Whether a graph knows it, and may ask for ever whether it is closed. */
  private boolean captured;

  /** Whose closing ends the segments that callers have; null if they have none. */
  private volatile @Nullable Arena lent;

  @SuppressWarnings("unused") // by VarHandle
  private boolean closed;

  /** An allocated buffer, which owns {@code block}. */
  public HostBuffer(Device device, HostHeap.Block block, boolean shared) {
    this.device = device;
    this.segment = block.segment();
    this.offset = block.offset();
    this.bytes = block.bytes();
    this.shared = shared;
    this.readOnly = false;
    this.root = this;
    this.block = block;
  }

  /** A buffer of a pool, closed. */
  HostBuffer(Device device, MemorySegment segment, boolean shared) {
    this.device = device;
    this.segment = segment;
    this.shared = shared;
    this.readOnly = false;
    this.root = this;
    this.block = null;
    this.closed = true;
  }

  /** A caller's memory. */
  public HostBuffer(Device device, MemorySegment segment) {
    this.device = device;
    this.segment = segment;
    this.offset = 0;
    this.bytes = segment.byteSize();
    this.shared = false;
    this.readOnly = segment.isReadOnly();
    this.root = this;
    this.block = null;
  }

  private HostBuffer(HostBuffer parent, long byteOffset, long byteSize) {
    this.device = parent.device;
    this.segment = parent.segment;
    this.offset = parent.offset + byteOffset;
    this.bytes = byteSize;
    this.shared = parent.shared;
    this.readOnly = parent.readOnly;
    this.root = parent.root;
    this.generation = parent.generation;
    this.block = null;
  }

  /** Makes a pool's closed buffer stand for a block. */
  void open(PoolBlock of, MemorySegment memory, long byteSize) {
    segment = memory;
    offset = of.offset();
    bytes = byteSize;
    pooled = of;
    lent = null;
    generation++;
    CLOSED.setRelease(this, false);
  }

  @Override
  public boolean isPartOf(Object whole) {
    return this == whole || root == whole;
  }

  @Override
  public void capture() {
    root.captured = true;
  }

  /** The memory this buffer lies in, at {@link #offset()}. */
  public MemorySegment segment() {
    return segment;
  }

  /**
   * Where in {@link #segment()} it starts; for a {@link #isShared() shared} buffer the heap offset
   * that peers use.
   */
  public long offset() {
    return offset;
  }

  /** Whether ranks in other processes can reach it. */
  public boolean isShared() {
    return shared;
  }

  @Override
  public Device device() {
    return device;
  }

  @Override
  public long address() {
    return segment.address() + offset;
  }

  @Override
  public long byteSize() {
    return bytes;
  }

  /** Whether it has bytes in common with another buffer, by their addresses. */
  public boolean overlaps(HostBuffer other) {
    return address() < other.address() + other.byteSize()
        && other.address() < address() + byteSize();
  }

  @Override
  public DeviceBuffer slice(long byteOffset, long byteSize) {
    requireSlice(byteOffset, byteSize);
    return new HostBuffer(this, byteOffset, byteSize);
  }

  @Override
  public void copyFrom(MemorySegment source) {
    requireUsable("copyFrom");
    requireWritable("copyFrom");
    MemorySegment readable = NativeSegments.requireReadable(source, bytes);
    MemorySegment.copy(readable, 0, segment, offset, readable.byteSize());
  }

  @Override
  public void copyTo(MemorySegment target) {
    requireUsable("copyTo");
    MemorySegment writable = NativeSegments.requireWritable(target, bytes);
    MemorySegment.copy(segment, offset, writable, 0, writable.byteSize());
  }

  @Override
  public Optional<MemorySegment> hostSegment() {
    requireUsable("hostSegment");
    MemorySegment own = segment.asSlice(offset, bytes);
    if (shared) {
      return Optional.of(MemoryAccess.withLife(own, root.lent()));
    }
    // A caller's segment, or a block in its own arena, already has a lifetime.
    return root.pooled == null ? Optional.of(own) : Optional.empty();
  }

  /** The life of the segments that callers have of it: it ends when it is closed. */
  private synchronized Arena lent() {
    Arena arena = lent;
    if (arena == null) {
      arena = Arena.ofShared();
      lent = arena;
      if ((boolean) CLOSED.getVolatile(this)) {
        endLent();
      }
      requireOpen();
    }
    return arena;
  }

  /** Ends it, unless the JDK works with such a segment right now. */
  private boolean endLent() {
    Arena arena = lent;
    if (arena != null && arena.scope().isAlive()) {
      try {
        arena.close();
      } catch (IllegalStateException e) {
        return !arena.scope().isAlive();
      }
    }
    return true;
  }

  /** Refuses a closed buffer, and one that peers may still write to. */
  public void requireUsable(String call) {
    requireOpen();
    ProcessMemory.self().quarantine().requireQuiet(this, call);
  }

  @Override
  public boolean isQuiet() {
    return ProcessMemory.self().usesOf(root).areOver()
        && ProcessMemory.self().quarantine().isQuiet(address(), bytes);
  }

  @Override
  public boolean isReadOnly() {
    return readOnly;
  }

  @Override
  public boolean isClosed() {
    return (boolean) CLOSED.getOpaque(this)
        || (boolean) CLOSED.getOpaque(root)
        || generation != root.generation;
  }

  @Override
  public void close() {
    if ((boolean) CLOSED.getOpaque(this)) {
      return;
    }
    if (!endLent()) {
      throw new InvalidUsageException(
          "the buffer's host segment is in use by a call of the JDK, such as a read of a file",
          "close the buffer when that call has returned");
    }
    PoolBlock ofPool = pooled;
    if (ofPool != null) {
      if (CLOSED.compareAndSet(this, false, true)) {
        boolean ignored = endLent();
        ofPool.close(this, !captured);
      }
      return;
    }
    if (CLOSED.compareAndSet(this, false, true) && block != null) {
      // Somebody may have asked for the segment meanwhile; nobody can use it yet.
      boolean ignored = endLent();
      ProcessMemory.self()
          .heap()
          .free(block, ProcessMemory.self().whenUnused(this, address(), bytes));
    }
  }
}
