package io.nccl4j.internal.cuda.memory;

import io.nccl4j.NcclException;
import io.nccl4j.internal.cuda.driver.Gpu;
import io.nccl4j.internal.cuda.driver.GpuDevice;
import io.nccl4j.internal.memory.Deferral;
import io.nccl4j.internal.memory.Uses;
import io.nccl4j.internal.schedule.GroupScope;
import io.nccl4j.internal.spi.MemoryBook;
import io.nccl4j.memory.MemoryPlace;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.BooleanSupplier;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;
import org.jspecify.annotations.Nullable;

/**
 * All that is taken of a device's memory, by whom, and what waits to be freed. It owns the heaps.
 * Thread-safe.
 */
public final class DeviceMemory {
  private static final Logger LOG = LogManager.getLogger(DeviceMemory.class);

  private final GpuDevice device;
  private final Gpu gpu;
  private final MemoryUsers users;
  private final MemoryBook book = new MemoryBook();
  private final MemoryBook.Account account;
  private final AtomicLong predictedForNccl = new AtomicLong();
  private final CudaHeap heap;
  private final PinnedHeap pinned;
  private final Deferral deferred = new Deferral();
  private @Nullable Transfers transfers;

  /** The memory of {@code device}, which {@code users} use. */
  public DeviceMemory(GpuDevice device, Gpu gpu, MemoryUsers users) {
    this.device = device;
    this.gpu = gpu;
    this.users = users;
    account = book.open(gpu.toString(), device);
    heap = new CudaHeap(gpu, account);
    pinned = new PinnedHeap(gpu, account);
  }

  /** Whose memory it is. */
  public GpuDevice device() {
    return device;
  }

  /** The GPU itself. */
  public Gpu gpu() {
    return gpu;
  }

  /** What uses it. */
  public MemoryUsers users() {
    return users;
  }

  /** Who has taken which of it. */
  public MemoryBook book() {
    return book;
  }

  /** What belongs to no communicator. */
  public MemoryBook.Account account() {
    return account;
  }

  /** Buffers' memory. */
  public CudaHeap heap() {
    return heap;
  }

  PinnedHeap pinned() {
    return pinned;
  }

  synchronized Transfers transfers() {
    if (transfers == null) {
      transfers = new Transfers(gpu, pinned);
    }
    return transfers;
  }

  /** What this backend has taken, and what NCCL is predicted to take for communicators. */
  public long takenBytes() {
    return bookedBytes() + predictedForNccl.get();
  }

  /** What this backend has taken. */
  public long bookedBytes() {
    return book.bytes(device, MemoryPlace.DEVICE);
  }

  /** A communicator was made, or with a negative number closed. */
  public void addPredicted(long bytes) {
    predictedForNccl.addAndGet(bytes);
  }

  // ---- what is freed later

  /** Frees what was closed while it was in use, as far as nothing uses it any more. */
  public void sweep() {
    if (!deferred.isEmpty()) {
      users.learnPassed();
      deferred.sweep();
    }
  }

  /**
   * Releases what belongs to a closed buffer when nothing uses it any more: now, or at a later
   * {@link #sweep()}.
   */
  void whenUnused(Object buffer, Runnable release) {
    if (GroupScope.collected().stream().anyMatch(work -> work.uses(buffer))) {
      GroupScope.afterGroups(
          () -> {
            whenSafe(users.usesOf(buffer)::areOver, release);
            sweep();
          });
      return;
    }
    Uses uses = users.usesOf(buffer);
    if (uses.areOver()) {
      release.run();
    } else {
      whenSafe(uses::areOver, release);
    }
    sweep();
  }

  /** Releases something at the first {@link #sweep()} that finds it safe. */
  public void whenSafe(BooleanSupplier safe, Runnable release) {
    deferred.add(
        safe,
        () -> {
          try {
            release.run();
          } catch (NcclException e) {
            // Whoever closed it is gone, and whoever sweeps has nothing to do with it.
            LOG.warn("what was closed on {} while in use is left to CUDA: {}", gpu, e.getMessage());
          }
        });
  }

  @Override
  public String toString() {
    return gpu.toString();
  }
}
