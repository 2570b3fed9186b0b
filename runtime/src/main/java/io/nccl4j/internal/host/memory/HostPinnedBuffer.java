package io.nccl4j.internal.host.memory;

import io.nccl4j.PinnedBuffer;
import io.nccl4j.SystemErrorException;
import io.nccl4j.internal.memory.Uses;
import io.nccl4j.internal.spi.MemoryBook;
import io.nccl4j.internal.spi.Resource;
import io.nccl4j.memory.MemoryPlace;
import io.nccl4j.memory.MemoryPurpose;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * Host memory beside a host device: plain native memory, since the device is the host. It owns its
 * arena.
 */
public final class HostPinnedBuffer implements PinnedBuffer, Resource {
  private final Arena arena = Arena.ofShared();
  private final MemorySegment segment;
  private final MemoryBook.Booking booking;
  private final AtomicBoolean closed = new AtomicBoolean();

  public HostPinnedBuffer(MemoryBook.Account account, long bytes) {
    try {
      ProcessMemory.self().heap().requireRoom(bytes);
      segment = arena.allocate(bytes, 64);
    } catch (SystemErrorException e) {
      arena.close();
      throw e;
    } catch (OutOfMemoryError e) {
      arena.close();
      throw new SystemErrorException(
              "cannot allocate " + bytes + " bytes of host memory: " + e.getMessage(),
              "free memory")
          .causedBy(e);
    }
    booking = account.book(MemoryPurpose.USER, MemoryPlace.NATIVE, bytes);
  }

  @Override
  public MemorySegment segment() {
    return segment;
  }

  @Override
  public long byteSize() {
    return segment.byteSize();
  }

  @Override
  public boolean isPartOf(Object whole) {
    return this == whole;
  }

  @Override
  public boolean isClosed() {
    return closed.get();
  }

  @Override
  public void close() {
    if (closed.compareAndSet(false, true)) {
      Uses uses = ProcessMemory.self().usesOf(this);
      ProcessMemory.self().heap().whenSafe(uses::areOver, this::free);
    }
  }

  private void free() {
    arena.close();
    booking.release();
  }
}
