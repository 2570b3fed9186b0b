package io.nccl4j.cuda;

import io.nccl4j.MemoryPlace;
import io.nccl4j.MemoryPurpose;
import io.nccl4j.NcclException;
import io.nccl4j.SystemErrorException;
import io.nccl4j.bindings.cuda.CUmemAccessDesc;
import io.nccl4j.bindings.cuda.CUmemAllocationProp;
import io.nccl4j.bindings.cuda.CUmemLocation;
import io.nccl4j.bindings.cuda.Cuda;
import io.nccl4j.memory.RangeAllocator;
import io.nccl4j.spi.MemoryBook;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * Memory of one GPU: chunks of physical memory, each mapped into a range of addresses, and blocks
 * in them. It owns the chunks; one that becomes empty is given back, except the last.
 *
 * <p>Only CUDA's virtual memory calls are used. The older allocation calls synchronise with running
 * kernels, so that they deadlock with a collective that waits for another rank.
 *
 * <p>Thread-safe.
 */
@SuppressWarnings("try") // a scope is entered, not used
final class CudaHeap {
  /** A part of a chunk, and whose it is. */
  record Block(Chunk chunk, long address, long bytes, MemoryBook.Booking booking) {}

  /** Physical memory, mapped at {@code address}; what is in no block is booked as unused. */
  record Chunk(
      long address, long bytes, long handle, RangeAllocator ranges, MemoryBook.Booking unused) {
    @Nullable Block take(long size, MemoryBook.Account account, MemoryPurpose purpose) {
      long start = ranges.allocate(size, ALIGNMENT);
      if (start < 0) {
        return null;
      }
      unused.resize(ranges.freeBytes());
      return new Block(this, start, size, account.book(purpose, MemoryPlace.DEVICE, size));
    }

    void give(Block block) {
      ranges.free(block.address, block.bytes);
      block.booking.release();
      unused.resize(ranges.freeBytes());
    }
  }

  /** Every block starts at a multiple of this, which NCCL asks of windows. */
  static final long ALIGNMENT = 4096;

  static final long CHUNK_BYTES = 32L << 20;
  private static final int HANDLE_POSIX_FD = 1;
  private static final int READ_WRITE = 3;

  private final CudaDevice device;
  private final List<Chunk> chunks = new ArrayList<>();
  private long granularity;

  CudaHeap(CudaDevice device) {
    this.device = device;
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
          "cannot allocate " + bytes + " bytes on " + device, "allocate less");
    }
    long size = roundUp(Math.max(bytes, 1), ALIGNMENT);
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

  /** Gives a block back; nothing uses it any more. */
  synchronized void free(Block block) {
    Chunk chunk = block.chunk;
    chunk.give(block);
    if (chunk.ranges.freeBytes() == chunk.bytes && chunks.size() > 1) {
      chunks.remove(chunk);
      try (CudaDevice.Scope ignored = device.enter()) {
        chunk.unused.release();
        unmap(chunk);
      }
    }
  }

  private Chunk newChunk(long size) {
    // Found out before: nothing may wait while the context is current on a virtual thread.
    device.peers();
    try (CudaDevice.Scope ignored = device.enter()) {
      try {
        return map(Math.max(size, CHUNK_BYTES));
      } catch (SystemErrorException e) {
        if (size >= CHUNK_BYTES) {
          throw e;
        }
        return map(size);
      }
    }
  }

  private Chunk map(long size) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment properties = properties(arena);
      MemorySegment out = arena.allocate(ValueLayout.JAVA_LONG);
      if (granularity == 0) {
        Driver.check(
            Cuda.cuMemGetAllocationGranularity(
                out, properties, Cuda.CU_MEM_ALLOC_GRANULARITY_RECOMMENDED()),
            "cuMemGetAllocationGranularity");
        granularity = out.get(ValueLayout.JAVA_LONG, 0);
      }
      long bytes = roundUp(size, granularity);
      long handle = create(bytes, properties, out);
      long address = 0;
      boolean mapped = false;
      try {
        Driver.check(
            Cuda.cuMemAddressReserve(out, bytes, granularity, 0, 0), "cuMemAddressReserve");
        address = out.get(ValueLayout.JAVA_LONG, 0);
        Driver.check(Cuda.cuMemMap(address, bytes, 0, handle, 0), "cuMemMap");
        mapped = true;
        grantAccess(address, bytes, arena);
        MemoryBook.Booking unused =
            device.account().book(MemoryPurpose.UNUSED, MemoryPlace.DEVICE, bytes);
        RangeAllocator ranges = new RangeAllocator(address, address + bytes);
        return new Chunk(address, bytes, handle, ranges, unused);
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
  private long create(long bytes, MemorySegment properties, MemorySegment out) {
    int result = Cuda.cuMemCreate(out, bytes, properties, 0);
    if (result == Driver.NOT_SUPPORTED || result == Driver.NOT_PERMITTED) {
      CUmemAllocationProp.requestedHandleTypes(properties, 0);
      result = Cuda.cuMemCreate(out, bytes, properties, 0);
    }
    if (result == Driver.OUT_OF_MEMORY) {
      throw new SystemErrorException(
          "cannot allocate " + bytes + " bytes on " + device + ": " + device.freeMemory(),
          "free device memory, or allocate less");
    }
    Driver.check(result, "cuMemCreate");
    return out.get(ValueLayout.JAVA_LONG, 0);
  }

  private MemorySegment properties(Arena arena) {
    MemorySegment properties = CUmemAllocationProp.allocate(arena).fill((byte) 0);
    CUmemAllocationProp.type(properties, Cuda.CU_MEM_ALLOCATION_TYPE_PINNED());
    CUmemAllocationProp.requestedHandleTypes(properties, HANDLE_POSIX_FD);
    MemorySegment location = CUmemAllocationProp.location(properties);
    CUmemLocation.type(location, Cuda.CU_MEM_LOCATION_TYPE_DEVICE());
    CUmemLocation.id(location, device.ordinal());
    if (device.attribute(Cuda.CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED()) != 0) {
      MemorySegment flags = CUmemAllocationProp.allocFlags(properties);
      CUmemAllocationProp.allocFlags.gpuDirectRDMACapable(flags, (byte) 1);
    }
    return properties;
  }

  /** For this device and those that can reach it directly. */
  private void grantAccess(long address, long bytes, Arena arena) {
    List<Integer> devices = new ArrayList<>(device.peers());
    devices.addFirst(device.ordinal());
    MemorySegment access = CUmemAccessDesc.allocateArray(devices.size(), arena);
    for (int i = 0; i < devices.size(); i++) {
      MemorySegment one = CUmemAccessDesc.asSlice(access, i);
      MemorySegment location = CUmemAccessDesc.location(one);
      CUmemLocation.type(location, Cuda.CU_MEM_LOCATION_TYPE_DEVICE());
      CUmemLocation.id(location, devices.get(i));
      CUmemAccessDesc.flags(one, READ_WRITE);
    }
    Driver.check(Cuda.cuMemSetAccess(address, bytes, access, devices.size()), "cuMemSetAccess");
  }

  private static void unmap(Chunk chunk) {
    NcclException failure =
        Driver.also(null, Cuda.cuMemUnmap(chunk.address, chunk.bytes), "cuMemUnmap");
    failure =
        Driver.also(failure, Cuda.cuMemAddressFree(chunk.address, chunk.bytes), "cuMemAddressFree");
    failure = Driver.also(failure, Cuda.cuMemRelease(chunk.handle), "cuMemRelease");
    if (failure != null) {
      throw failure;
    }
  }

  private static long roundUp(long value, long multiple) {
    return (value + multiple - 1) / multiple * multiple;
  }
}
