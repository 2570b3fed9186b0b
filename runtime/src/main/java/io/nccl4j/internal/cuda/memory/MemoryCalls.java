package io.nccl4j.internal.cuda.memory;

import io.nccl4j.SystemErrorException;
import io.nccl4j.bindings.cuda.CUmemAccessDesc;
import io.nccl4j.bindings.cuda.CUmemAllocationProp;
import io.nccl4j.bindings.cuda.CUmemLocation;
import io.nccl4j.bindings.cuda.Cuda;
import io.nccl4j.internal.cuda.driver.Driver;
import io.nccl4j.internal.cuda.driver.Gpu;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.List;

/** Arguments of CUDA's virtual memory calls. */
final class MemoryCalls {
  /** Kinds of handles that other processes can import. */
  static final int POSIX_FD = 1;

  static final int FABRIC = 8;

  /** Ways of access. */
  static final int NO_ACCESS = 0;

  static final int READ = 1;
  static final int READ_WRITE = 3;

  private MemoryCalls() {}

  /** What memory of a device is to be like; no other process can import it. */
  static MemorySegment properties(Gpu gpu, Arena arena) {
    MemorySegment properties = CUmemAllocationProp.allocate(arena).fill((byte) 0);
    CUmemAllocationProp.type(properties, Cuda.CU_MEM_ALLOCATION_TYPE_PINNED());
    MemorySegment location = CUmemAllocationProp.location(properties);
    CUmemLocation.type(location, Cuda.CU_MEM_LOCATION_TYPE_DEVICE());
    CUmemLocation.id(location, gpu.ordinal());
    if (gpu.attribute(Cuda.CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED()) != 0) {
      MemorySegment flags = CUmemAllocationProp.allocFlags(properties);
      CUmemAllocationProp.allocFlags.gpuDirectRDMACapable(flags, (byte) 1);
    }
    return properties;
  }

  /** Sets by which handles other processes can import the memory. */
  static void handleTypes(MemorySegment properties, int types) {
    CUmemAllocationProp.requestedHandleTypes(properties, types);
  }

  /** What sizes and addresses must be multiples of. */
  static long granularity(MemorySegment properties, int option, Arena arena) {
    MemorySegment out = arena.allocate(ValueLayout.JAVA_LONG);
    Driver.check(
        Cuda.cuMemGetAllocationGranularity(out, properties, option),
        "cuMemGetAllocationGranularity");
    return out.get(ValueLayout.JAVA_LONG, 0);
  }

  /** Opens or closes mapped memory to devices, by their ordinals. */
  static void setAccess(long address, long bytes, List<Integer> devices, int flags, Arena arena) {
    MemorySegment access = CUmemAccessDesc.allocateArray(devices.size(), arena);
    for (int i = 0; i < devices.size(); i++) {
      MemorySegment one = CUmemAccessDesc.asSlice(access, i);
      MemorySegment location = CUmemAccessDesc.location(one);
      CUmemLocation.type(location, Cuda.CU_MEM_LOCATION_TYPE_DEVICE());
      CUmemLocation.id(location, devices.get(i));
      CUmemAccessDesc.flags(one, flags);
    }
    Driver.check(Cuda.cuMemSetAccess(address, bytes, access, devices.size()), "cuMemSetAccess");
  }

  /** There is not so much; the context is current. */
  static SystemErrorException outOfMemory(Gpu gpu, long bytes) {
    return new SystemErrorException(
        "cannot allocate " + bytes + " bytes on " + gpu + ": " + gpu.freeMemory(),
        "free device memory, or allocate less");
  }

  static long roundUp(long value, long multiple) {
    return (value + multiple - 1) / multiple * multiple;
  }
}
