package io.nccl4j.internal.cuda.memory;

import io.nccl4j.Device;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.bindings.cuda.CUmulticastObjectProp;
import io.nccl4j.bindings.cuda.Cuda;
import io.nccl4j.cuda.AddressRange;
import io.nccl4j.cuda.MemoryFeature;
import io.nccl4j.cuda.MulticastMemory;
import io.nccl4j.cuda.PhysicalMemory;
import io.nccl4j.cuda.VirtualMemory;
import io.nccl4j.internal.cuda.driver.Driver;
import io.nccl4j.internal.cuda.driver.Gpu;
import io.nccl4j.internal.cuda.driver.GpuDevice;
import io.nccl4j.memory.MemoryPlace;
import io.nccl4j.memory.MemoryPurpose;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * CUDA's virtual memory calls, and the one list of what was made by them. Its monitor guards all
 * that it owns.
 */
@SuppressWarnings("try") // a scope is entered, not used
public final class CudaVirtualMemory implements VirtualMemory {
  private final DeviceMemory memory;
  private final Gpu gpu;
  private final long minimum;
  private final long recommended;
  private final List<CudaPhysical> physical = new ArrayList<>();
  private final List<CudaRange> ranges = new ArrayList<>();
  private boolean closed;

  /** The virtual memory of a device that has it. */
  public CudaVirtualMemory(DeviceMemory memory) {
    this.memory = memory;
    this.gpu = memory.gpu();
    MemorySupport.require(gpu, MemoryFeature.VIRTUAL_MEMORY);
    // Found out before: nothing may wait while the context is current on a virtual thread.
    gpu.peers();
    try (Gpu.Scope ignored = gpu.enter();
        Arena arena = Arena.ofConfined()) {
      MemorySegment properties = MemoryCalls.properties(gpu, arena);
      minimum = MemoryCalls.granularity(properties, Cuda.CU_MEM_ALLOC_GRANULARITY_MINIMUM(), arena);
      recommended =
          MemoryCalls.granularity(properties, Cuda.CU_MEM_ALLOC_GRANULARITY_RECOMMENDED(), arena);
    }
  }

  DeviceMemory memory() {
    return memory;
  }

  Gpu gpu() {
    return gpu;
  }

  @Override
  public Device device() {
    return memory.device();
  }

  @Override
  public long minimumGranularity() {
    return minimum;
  }

  @Override
  public long recommendedGranularity() {
    return recommended;
  }

  // ---- checks

  Gpu require(@Nullable Device other) {
    if (!(other instanceof GpuDevice own)) {
      throw new InvalidArgumentException(
          "the device is " + (other == null ? "null" : other + ", not a cuda device"),
          "pass a device of Backend.CUDA");
    }
    return own.gpu();
  }

  /** Whether a part lies inside a whole, and is made of granules. */
  void requirePart(String call, long offset, long bytes, long whole) {
    if (bytes <= 0 || offset < 0 || offset > whole - bytes) {
      throw new InvalidArgumentException(
          call + ": " + bytes + " bytes at " + offset + " of " + whole,
          "parts have a size and lie inside the whole");
    }
    if (offset % minimum != 0 || bytes % minimum != 0) {
      throw new InvalidArgumentException(
          call + ": " + bytes + " bytes at " + offset + " are not multiples of " + minimum,
          "round up to minimumGranularity(), or by roundUp");
    }
  }

  private void requireSize(String call, long bytes) {
    requirePart(call, 0, bytes, Long.MAX_VALUE);
  }

  private void requireOpen() {
    if (closed) {
      throw new InvalidUsageException(
          "the virtual memory is closed", "create a new one with device.newVirtualMemory()");
    }
  }

  /** CUDA's kinds of handles, all of which the device has. */
  private int handleTypes(@Nullable Set<MemoryFeature> handles) {
    if (handles == null) {
      throw new InvalidArgumentException("the set of handles is null", "pass an empty set");
    }
    int types = 0;
    for (MemoryFeature handle : handles) {
      types |=
          switch (handle) {
            case FILE_DESCRIPTORS -> MemoryCalls.POSIX_FD;
            case FABRIC_HANDLES -> MemoryCalls.FABRIC;
            default ->
                throw new InvalidArgumentException(
                    handle + " is not a kind of handle", "pass FILE_DESCRIPTORS or FABRIC_HANDLES");
          };
      MemorySupport.require(gpu, handle);
    }
    return types;
  }

  // ---- physical memory

  @Override
  public PhysicalMemory create(long bytes, Set<MemoryFeature> handles) {
    requireSize("create", bytes);
    int types = handleTypes(handles);
    synchronized (this) {
      requireOpen();
      try (Gpu.Scope ignored = gpu.enter();
          Arena arena = Arena.ofConfined()) {
        MemorySegment properties = MemoryCalls.properties(gpu, arena);
        MemoryCalls.handleTypes(properties, types);
        MemorySegment out = arena.allocate(ValueLayout.JAVA_LONG);
        int result = Cuda.cuMemCreate(out, bytes, properties, 0);
        if (result == Driver.OUT_OF_MEMORY) {
          throw MemoryCalls.outOfMemory(gpu, bytes);
        }
        requirePermitted(result, types);
        Driver.check(result, "cuMemCreate");
        CudaPhysical made =
            new CudaPhysical(
                this,
                out.get(ValueLayout.JAVA_LONG, 0),
                bytes,
                types,
                memory.account().book(MemoryPurpose.USER, MemoryPlace.DEVICE, bytes));
        physical.add(made);
        return made;
      }
    }
  }

  private void requirePermitted(int result, int types) {
    boolean isRefused = result == Driver.NOT_SUPPORTED || result == Driver.NOT_PERMITTED;
    if (isRefused && types != 0) {
      throw (InvalidUsageException)
          new InvalidUsageException(
                  gpu + " cannot create memory with these handles here",
                  (types & MemoryCalls.FABRIC) != 0
                      ? "fabric handles need an IMEX channel in /dev/nvidia-caps-imex-channels that"
                          + " this user may open"
                      : "create it without handles")
              .causedBy(Driver.failure(result, "cuMemCreate"));
    }
  }

  @Override
  public PhysicalMemory importDescriptor(int descriptor, long bytes) {
    requireSize("importDescriptor", bytes);
    return imported(
        descriptor(descriptor), MemoryCalls.POSIX_FD, "importDescriptor", bytes, this::foreign);
  }

  @Override
  public PhysicalMemory importFabric(byte[] handle, long bytes) {
    if (handle == null || handle.length != PhysicalMemory.FABRIC_BYTES) {
      throw new InvalidArgumentException(
          "importFabric: the handle " + (handle == null ? "is null" : "has another size"),
          "pass the " + PhysicalMemory.FABRIC_BYTES + " bytes of exportFabric()");
    }
    requireSize("importFabric", bytes);
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment copy = arena.allocateFrom(ValueLayout.JAVA_BYTE, handle);
      return imported(copy, MemoryCalls.FABRIC, "importFabric", bytes, this::foreign);
    }
  }

  private CudaPhysical foreign(long handle, long bytes) {
    return new CudaPhysical(this, handle, bytes, 0, null);
  }

  /** CUDA takes the number itself as a pointer. */
  private static MemorySegment descriptor(int descriptor) {
    if (descriptor < 0) {
      throw new InvalidArgumentException(
          "the descriptor is " + descriptor, "pass the number of an open descriptor");
    }
    return MemorySegment.ofAddress(descriptor);
  }

  /** Makes the object of an imported handle. */
  private interface Maker<P> {
    P make(long handle, long bytes);
  }

  private synchronized <P extends CudaPhysical> P imported(
      MemorySegment from, int type, String call, long bytes, Maker<P> maker) {
    requireOpen();
    try (Gpu.Scope ignored = gpu.enter();
        Arena arena = Arena.ofConfined()) {
      MemorySegment out = arena.allocate(ValueLayout.JAVA_LONG);
      int result = Cuda.cuMemImportFromShareableHandle(out, from, type);
      if (result != Driver.SUCCESS) {
        throw (InvalidArgumentException)
            new InvalidArgumentException(
                    call + ": CUDA does not accept it as memory of another process",
                    "pass what export returned; a descriptor of another process must be passed"
                        + " over a socket")
                .causedBy(Driver.failure(result, "cuMemImportFromShareableHandle"));
      }
      P made = maker.make(out.get(ValueLayout.JAVA_LONG, 0), bytes);
      physical.add(made);
      return made;
    }
  }

  @Override
  public synchronized long physicalBytes() {
    return physical.stream()
        .filter(CudaPhysical::ownsMemory)
        .mapToLong(CudaPhysical::byteSize)
        .sum();
  }

  /** Closes what is its own. */
  synchronized void close(CudaPhysical memory) {
    if (memory.tryClose()) {
      physical.remove(memory);
      try (Gpu.Scope ignored = gpu.enter()) {
        Driver.check(memory.releaseHandle(), "cuMemRelease");
      }
    }
  }

  // ---- addresses

  @Override
  public AddressRange reserve(long bytes) {
    requireSize("reserve", bytes);
    synchronized (this) {
      requireOpen();
      try (Gpu.Scope ignored = gpu.enter();
          Arena arena = Arena.ofConfined()) {
        MemorySegment out = arena.allocate(ValueLayout.JAVA_LONG);
        Driver.check(
            Cuda.cuMemAddressReserve(out, bytes, recommended, 0, 0), "cuMemAddressReserve");
        CudaRange made = new CudaRange(this, out.get(ValueLayout.JAVA_LONG, 0), bytes);
        ranges.add(made);
        return made;
      }
    }
  }

  void forget(CudaRange range) {
    ranges.remove(range);
  }

  // ---- multicast

  @Override
  public long multicastGranularity(long bytes, int devices, boolean best) {
    requireSize("multicastGranularity", bytes);
    requireTeam(devices);
    try (Gpu.Scope ignored = gpu.enter();
        Arena arena = Arena.ofConfined()) {
      return granularity(properties(bytes, devices, 0, arena), best, arena);
    }
  }

  private static long granularity(MemorySegment properties, boolean best, Arena arena) {
    int option =
        best
            ? Cuda.CU_MULTICAST_GRANULARITY_RECOMMENDED()
            : Cuda.CU_MULTICAST_GRANULARITY_MINIMUM();
    MemorySegment out = arena.allocate(ValueLayout.JAVA_LONG);
    Driver.check(
        Cuda.cuMulticastGetGranularity(out, properties, option), "cuMulticastGetGranularity");
    return out.get(ValueLayout.JAVA_LONG, 0);
  }

  private void requireTeam(int devices) {
    MemorySupport.require(gpu, MemoryFeature.MULTICAST);
    if (devices < 2) {
      throw new InvalidArgumentException(
          "multicast for " + devices + " devices", "it joins at least 2 devices");
    }
  }

  private static MemorySegment properties(long bytes, int devices, int types, Arena arena) {
    MemorySegment properties = CUmulticastObjectProp.allocate(arena).fill((byte) 0);
    CUmulticastObjectProp.numDevices(properties, devices);
    CUmulticastObjectProp.size(properties, bytes);
    CUmulticastObjectProp.handleTypes(properties, types);
    return properties;
  }

  @Override
  public MulticastMemory createMulticast(long bytes, int devices, Set<MemoryFeature> handles) {
    requireSize("createMulticast", bytes);
    requireTeam(devices);
    int types = handleTypes(handles);
    synchronized (this) {
      requireOpen();
      try (Gpu.Scope ignored = gpu.enter();
          Arena arena = Arena.ofConfined()) {
        MemorySegment properties = properties(bytes, devices, types, arena);
        long unit = granularity(properties, false, arena);
        if (bytes % unit != 0) {
          throw new InvalidArgumentException(
              "createMulticast: " + bytes + " bytes are not a multiple of " + unit,
              "round up to multicastGranularity");
        }
        MemorySegment out = arena.allocate(ValueLayout.JAVA_LONG);
        Driver.check(Cuda.cuMulticastCreate(out, properties), "cuMulticastCreate");
        long handle = out.get(ValueLayout.JAVA_LONG, 0);
        CudaMulticast made = new CudaMulticast(this, handle, bytes, types, devices, false);
        physical.add(made);
        return made;
      }
    }
  }

  @Override
  public MulticastMemory importMulticast(int descriptor, long bytes, int devices) {
    requireSize("importMulticast", bytes);
    requireTeam(devices);
    return imported(
        descriptor(descriptor),
        MemoryCalls.POSIX_FD,
        "importMulticast",
        bytes,
        (handle, size) -> new CudaMulticast(this, handle, size, 0, devices, true));
  }

  // ---- closing

  @Override
  public synchronized void close() {
    if (closed) {
      return;
    }
    ranges.forEach(CudaRange::requireUnused);
    NcclException failure = null;
    try (Gpu.Scope ignored = gpu.enter()) {
      closed = true;
      for (CudaRange range : ranges) {
        failure = range.closeAll(failure);
      }
      for (CudaPhysical memory : physical) {
        if (memory instanceof CudaMulticast multicast) {
          failure = multicast.unbindAll(failure);
        }
      }
      for (CudaPhysical memory : physical) {
        failure = Driver.also(failure, memory.abandon(), "cuMemRelease");
      }
      ranges.clear();
      physical.clear();
    }
    if (failure != null) {
      throw failure;
    }
  }
}
