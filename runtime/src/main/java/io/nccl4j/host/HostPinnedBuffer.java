package io.nccl4j.host;

import io.nccl4j.InvalidUsageException;
import io.nccl4j.MemoryPlace;
import io.nccl4j.MemoryPurpose;
import io.nccl4j.PinnedBuffer;
import io.nccl4j.SystemErrorException;
import io.nccl4j.spi.MemoryBook;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/**
 * Host memory beside a host device: plain native memory, since the device is the host. It owns its
 * arena.
 */
final class HostPinnedBuffer implements PinnedBuffer {
  private final Arena arena = Arena.ofShared();
  private final MemorySegment segment;
  private final MemoryBook.Booking booking;

  HostPinnedBuffer(MemoryBook.Account account, long bytes) {
    try {
      segment = arena.allocate(bytes, 64);
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

  boolean isClosed() {
    return !arena.scope().isAlive();
  }

  @Override
  public void close() {
    if (isClosed()) {
      return;
    }
    String user = HostProcess.self().userOf(this);
    if (user != null) {
      throw new InvalidUsageException(
          "the pinned buffer is in use by " + user,
          "synchronize the stream before closing the buffer");
    }
    arena.close();
    booking.release();
  }
}
