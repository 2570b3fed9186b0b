package io.nccl4j.internal.cuda.memory;

import io.nccl4j.NcclException;
import io.nccl4j.SystemErrorException;
import io.nccl4j.bindings.cuda.Cuda;
import io.nccl4j.internal.cuda.driver.Driver;
import io.nccl4j.internal.cuda.driver.Gpu;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Physical memory of one GPU, mapped into addresses of its own, and open to this device and those
 * that can reach it. Whoever makes one owns it, and frees it once.
 *
 * <p>Only CUDA's virtual memory calls are used. The older allocation calls synchronise with running
 * kernels, so that they deadlock with a collective that waits for another rank.
 */
@SuppressWarnings("try") // a scope is entered, not used
final class CudaMapping {
  private final Gpu gpu;
  private final long address;
  private final long bytes;
  private final long handle;

  private CudaMapping(Gpu gpu, long address, long bytes, long handle) {
    this.gpu = gpu;
    this.address = address;
    this.bytes = bytes;
    this.handle = handle;
  }

  /**
   * Takes {@code size} bytes or a little more.
   *
   * @throws SystemErrorException if there is not so much
   */
  static CudaMapping create(Gpu gpu, long size) {
    // Found out before: nothing may wait while the context is current on a virtual thread.
    List<Integer> devices = new ArrayList<>(gpu.peers());
    devices.addFirst(gpu.ordinal());
    try (Gpu.Scope ignored = gpu.enter();
        Arena arena = Arena.ofConfined()) {
      MemorySegment properties = MemoryCalls.properties(gpu, arena);
      MemoryCalls.handleTypes(properties, MemoryCalls.POSIX_FD);
      long granularity =
          MemoryCalls.granularity(properties, Cuda.CU_MEM_ALLOC_GRANULARITY_RECOMMENDED(), arena);
      if (size > Long.MAX_VALUE - granularity) {
        throw MemoryCalls.outOfMemory(gpu, size);
      }
      long bytes = MemoryCalls.roundUp(size, granularity);
      long handle = create(gpu, bytes, properties, arena);
      MemorySegment out = arena.allocate(ValueLayout.JAVA_LONG);
      long address = 0;
      boolean mapped = false;
      try {
        Driver.check(
            Cuda.cuMemAddressReserve(out, bytes, granularity, 0, 0), "cuMemAddressReserve");
        address = out.get(ValueLayout.JAVA_LONG, 0);
        Driver.check(Cuda.cuMemMap(address, bytes, 0, handle, 0), "cuMemMap");
        mapped = true;
        MemoryCalls.setAccess(address, bytes, devices, MemoryCalls.READ_WRITE, arena);
        return new CudaMapping(gpu, address, bytes, handle);
      } catch (NcclException e) {
        undo(e, mapped ? Cuda.cuMemUnmap(address, bytes) : Driver.SUCCESS, "cuMemUnmap");
        undo(
            e,
            address != 0 ? Cuda.cuMemAddressFree(address, bytes) : Driver.SUCCESS,
            "cuMemAddressFree");
        undo(e, Cuda.cuMemRelease(handle), "cuMemRelease");
        throw e;
      }
    }
  }

  private static void undo(NcclException cause, int result, String call) {
    if (result != Driver.SUCCESS) {
      cause.addSuppressed(Driver.failure(result, call));
    }
  }

  /** Asks for memory that other processes can map; some systems allow only memory of one's own. */
  private static long create(Gpu gpu, long bytes, MemorySegment properties, Arena arena) {
    MemorySegment out = arena.allocate(ValueLayout.JAVA_LONG);
    int result = Cuda.cuMemCreate(out, bytes, properties, 0);
    if (result == Driver.NOT_SUPPORTED || result == Driver.NOT_PERMITTED) {
      MemoryCalls.handleTypes(properties, 0);
      result = Cuda.cuMemCreate(out, bytes, properties, 0);
    }
    if (result == Driver.OUT_OF_MEMORY) {
      throw MemoryCalls.outOfMemory(gpu, bytes);
    }
    Driver.check(result, "cuMemCreate");
    return out.get(ValueLayout.JAVA_LONG, 0);
  }

  long address() {
    return address;
  }

  long bytes() {
    return bytes;
  }

  /** Gives it back; nothing uses it any more. All steps are made, whatever fails. */
  void free() {
    @Nullable NcclException failure;
    try (Gpu.Scope ignored = gpu.enter()) {
      failure = Driver.also(null, Cuda.cuMemUnmap(address, bytes), "cuMemUnmap");
      failure = Driver.also(failure, Cuda.cuMemAddressFree(address, bytes), "cuMemAddressFree");
      failure = Driver.also(failure, Cuda.cuMemRelease(handle), "cuMemRelease");
    }
    if (failure != null) {
      throw failure;
    }
  }
}
