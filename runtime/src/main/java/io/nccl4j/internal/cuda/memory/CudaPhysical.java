package io.nccl4j.internal.cuda.memory;

import io.nccl4j.Device;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.bindings.Descriptors;
import io.nccl4j.bindings.cuda.Cuda;
import io.nccl4j.cuda.MemoryDescriptor;
import io.nccl4j.cuda.PhysicalMemory;
import io.nccl4j.internal.cuda.driver.Driver;
import io.nccl4j.internal.cuda.driver.Gpu;
import io.nccl4j.internal.spi.MemoryBook;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.jspecify.annotations.Nullable;

/**
 * A handle of CUDA for memory that can be mapped. Mappings and bindings hold it, of whichever
 * owner: it is not closed before them, and when its owner is closed, the last of them releases it.
 */
@SuppressWarnings("try") // a scope is entered, not used
class CudaPhysical implements PhysicalMemory {
  private static final int CLOSED = -1;

  /** Added when the owner was closed while others still use it. */
  private static final int ABANDONED = 1 << 30;

  private final CudaVirtualMemory owner;
  private final long handle;
  private final long bytes;
  private final int handleTypes;

  /** What it takes of the device; null for what takes nothing. */
  private final MemoryBook.@Nullable Booking booking;

  /** Mappings and bindings, and what is said above. */
  private final AtomicInteger uses = new AtomicInteger();

  CudaPhysical(
      CudaVirtualMemory owner,
      long handle,
      long bytes,
      int handleTypes,
      MemoryBook.@Nullable Booking booking) {
    this.owner = owner;
    this.handle = handle;
    this.bytes = bytes;
    this.handleTypes = handleTypes;
    this.booking = booking;
  }

  final CudaVirtualMemory owner() {
    return owner;
  }

  final long handle() {
    return handle;
  }

  /** Whether closing it frees memory of the device. */
  final boolean ownsMemory() {
    return booking != null;
  }

  /** What keeps it from being mapped; nothing if it can be. */
  String unready() {
    return "";
  }

  /** Notes a mapping or binding. */
  final void hold() {
    int before;
    do {
      before = uses.get();
      if (before == CLOSED || before >= ABANDONED) {
        throw new InvalidUsageException(
            "the physical memory is closed", "keep it open until it is mapped or bound");
      }
    } while (!uses.compareAndSet(before, before + 1));
  }

  /** Undoes one {@link #hold}; returns CUDA's result, if that was what kept it. */
  final int release() {
    return uses.decrementAndGet() == ABANDONED ? releaseHandle() : Driver.SUCCESS;
  }

  /** Its owner is closed; returns CUDA's result. */
  final int abandon() {
    return uses.getAndAdd(ABANDONED) == 0 ? releaseHandle() : Driver.SUCCESS;
  }

  @Override
  public final Device device() {
    return owner.device();
  }

  @Override
  public final long byteSize() {
    return bytes;
  }

  @Override
  public final MemoryDescriptor exportDescriptor() {
    int number;
    try (Gpu.Scope ignored = owner.gpu().enter();
        Arena arena = Arena.ofConfined()) {
      MemorySegment out = arena.allocate(ValueLayout.JAVA_INT);
      export(out, MemoryCalls.POSIX_FD, "file descriptor");
      number = out.get(ValueLayout.JAVA_INT, 0);
    }
    return new Exported(number, new AtomicBoolean());
  }

  @Override
  public final byte[] exportFabric() {
    try (Gpu.Scope ignored = owner.gpu().enter();
        Arena arena = Arena.ofConfined()) {
      MemorySegment out = arena.allocate(FABRIC_BYTES);
      export(out, MemoryCalls.FABRIC, "fabric handle");
      return out.toArray(ValueLayout.JAVA_BYTE);
    }
  }

  private void export(MemorySegment out, int type, String what) {
    if ((handleTypes & type) == 0) {
      throw new InvalidUsageException(
          "the memory has no " + what + ": it was created without one, or imported",
          "name the kind of handle when the memory is created");
    }
    hold();
    int result = Cuda.cuMemExportToShareableHandle(out, handle, type, 0);
    int released = release();
    Driver.check(result, "cuMemExportToShareableHandle");
    Driver.check(released, "cuMemRelease");
  }

  /** A descriptor of this process. */
  private record Exported(int open, AtomicBoolean closed) implements MemoryDescriptor {
    @Override
    public int number() {
      if (closed.get()) {
        throw new InvalidUsageException("the descriptor is closed", "export the memory again");
      }
      return open;
    }

    @Override
    public void close() {
      if (closed.compareAndSet(false, true)) {
        Descriptors.close(open);
      }
    }
  }

  @Override
  public final boolean isClosed() {
    int now = uses.get();
    return now == CLOSED || now >= ABANDONED;
  }

  @Override
  public final void close() {
    owner.close(this);
  }

  /** Whether this call closed it, and its handle is to be released. */
  final boolean tryClose() {
    int before = uses.compareAndExchange(0, CLOSED);
    if (before > 0 && before < ABANDONED) {
      throw new InvalidUsageException(
          "the physical memory is mapped or bound " + before + " times",
          "unmap and unbind it before closing it");
    }
    return before == 0;
  }

  /** Releases the handle; returns CUDA's result. */
  final int releaseHandle() {
    int result = Cuda.cuMemRelease(handle);
    if (booking != null && result == Driver.SUCCESS) {
      booking.release();
    }
    return result;
  }
}
