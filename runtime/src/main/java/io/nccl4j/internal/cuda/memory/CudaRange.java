package io.nccl4j.internal.cuda.memory;

import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.bindings.cuda.Cuda;
import io.nccl4j.cuda.AddressRange;
import io.nccl4j.cuda.DeviceAccess;
import io.nccl4j.cuda.PhysicalMemory;
import io.nccl4j.internal.cuda.driver.Driver;
import io.nccl4j.internal.cuda.driver.Gpu;
import java.lang.foreign.Arena;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.NavigableMap;
import java.util.TreeMap;
import org.jspecify.annotations.Nullable;

/** Addresses that CUDA has reserved, what is mapped there, and the buffers over it. */
@SuppressWarnings("try") // a scope is entered, not used
final class CudaRange implements AddressRange {
  /** A mapping, of which the device may do {@code access}. */
  private record Mapping(CudaPhysical memory, long bytes, DeviceAccess access) {}

  private final CudaVirtualMemory owner;
  private final long address;
  private final long bytes;

  /** By offset. */
  private final NavigableMap<Long, Mapping> mappings = new TreeMap<>();

  private final List<CudaBuffer> buffers = new ArrayList<>();
  private boolean closed;

  CudaRange(CudaVirtualMemory owner, long address, long bytes) {
    this.owner = owner;
    this.address = address;
    this.bytes = bytes;
  }

  @Override
  public long address() {
    return address;
  }

  @Override
  public long byteSize() {
    return bytes;
  }

  @Override
  public long mappedBytes() {
    synchronized (owner) {
      return mappings.values().stream().mapToLong(Mapping::bytes).sum();
    }
  }

  @Override
  public void map(long offset, @Nullable PhysicalMemory memory, long memoryOffset, long size) {
    if (!(memory instanceof CudaPhysical own)) {
      throw new InvalidArgumentException(
          "map: the memory is " + (memory == null ? "null" : "not of a cuda device"),
          "pass what create or an import returned");
    }
    owner.requirePart("map", offset, size, bytes);
    owner.requirePart("map, of the memory", memoryOffset, size, own.byteSize());
    synchronized (owner) {
      requireOpen();
      if (!own.unready().isEmpty()) {
        throw new InvalidUsageException("map: " + own.unready(), "add all of them first");
      }
      if (!mapped(offset, size).isEmpty()) {
        throw new InvalidUsageException(
            "map: something is mapped at "
                + mapped(offset, size).firstKey()
                + " of the range of "
                + bytes
                + " bytes",
            "unmap it first, or map elsewhere");
      }
      try (Gpu.Scope ignored = owner.gpu().enter()) {
        own.hold();
        int result = Cuda.cuMemMap(address + offset, size, memoryOffset, own.handle(), 0);
        if (result != Driver.SUCCESS) {
          Driver.check(own.release(), "cuMemRelease");
          requireWhole(result, size, own);
          throw Driver.failure(result, "cuMemMap");
        }
        mappings.put(offset, new Mapping(own, size, DeviceAccess.NONE));
      }
    }
  }

  private static void requireWhole(int result, long size, CudaPhysical memory) {
    if (result == Driver.NOT_SUPPORTED && size != memory.byteSize()) {
      throw (InvalidUsageException)
          new InvalidUsageException(
                  "map: this driver maps physical memory as a whole, not "
                      + size
                      + " of its "
                      + memory.byteSize()
                      + " bytes",
                  "create memory of the size to be mapped")
              .causedBy(Driver.failure(result, "cuMemMap"));
    }
  }

  /** The mappings that touch a part, by offset. */
  private NavigableMap<Long, Mapping> mapped(long offset, long size) {
    Map.Entry<Long, Mapping> before = mappings.floorEntry(offset);
    long first =
        before != null && before.getKey() + before.getValue().bytes > offset
            ? before.getKey()
            : offset;
    return mappings.subMap(first, true, offset + size, false);
  }

  /** The mappings that make up a part without gaps, and end with it if {@code whole}. */
  private NavigableMap<Long, Mapping> covering(String call, long offset, long size, boolean whole) {
    NavigableMap<Long, Mapping> parts = mapped(offset, size);
    long at = parts.isEmpty() ? -1 : parts.firstKey();
    boolean fits = at >= 0 && at <= offset && (!whole || at == offset);
    for (var part : parts.entrySet()) {
      fits &= part.getKey() == at;
      at += part.getValue().bytes;
    }
    if (!fits || at < offset + size || whole && at != offset + size) {
      throw new InvalidUsageException(
          call
              + ": "
              + size
              + " bytes at "
              + offset
              + " are not "
              + (whole ? "one or more whole mappings" : "mapped"),
          "the range has mappings at " + mappings.keySet());
    }
    return parts;
  }

  @Override
  public void setAccess(
      long offset, long size, @Nullable DeviceAccess access, @Nullable List<Device> devices) {
    if (access == null || devices == null || devices.isEmpty()) {
      throw new InvalidArgumentException(
          "setAccess: the access is " + access + ", the devices are " + devices,
          "pass an access, and at least one device");
    }
    List<Integer> ordinals = new ArrayList<>();
    for (Device device : devices) {
      ordinals.add(owner.require(device).ordinal());
    }
    owner.requirePart("setAccess", offset, size, bytes);
    synchronized (owner) {
      requireOpen();
      NavigableMap<Long, Mapping> parts = covering("setAccess", offset, size, true);
      for (Mapping part : parts.values()) {
        requireReachable(part.memory, devices);
      }
      int flags =
          switch (access) {
            case NONE -> MemoryCalls.NO_ACCESS;
            case READ -> MemoryCalls.READ;
            case READ_WRITE -> MemoryCalls.READ_WRITE;
          };
      try (Gpu.Scope ignored = owner.gpu().enter();
          Arena arena = Arena.ofConfined()) {
        MemoryCalls.setAccess(address + offset, size, ordinals, flags, arena);
      }
      if (ordinals.contains(owner.device().ordinal())) {
        parts.replaceAll((at, part) -> new Mapping(part.memory, part.bytes, access));
      }
    }
  }

  private static void requireReachable(CudaPhysical memory, List<Device> devices) {
    Gpu home = memory.owner().gpu();
    for (Device device : devices) {
      if (device.ordinal() != home.ordinal() && !home.peers().contains(device.ordinal())) {
        throw new InvalidArgumentException(
            "setAccess: " + device + " cannot reach memory of " + home,
            "name devices that are joined by NVLink or PCIe peer access");
      }
    }
  }

  @Override
  public DeviceBuffer buffer(long offset, long size) {
    if (offset < 0 || size < 0 || offset > bytes - size) {
      throw new InvalidArgumentException(
          "buffer: " + size + " bytes at " + offset + " of a range of " + bytes,
          "buffers lie inside their range");
    }
    synchronized (owner) {
      requireOpen();
      if (size > 0) {
        for (Mapping part : covering("buffer", offset, size, false).values()) {
          if (part.access != DeviceAccess.READ_WRITE) {
            throw new InvalidUsageException(
                "buffer: " + owner.device() + " may not read and write the memory",
                "call setAccess for it first");
          }
        }
      }
      CudaBuffer[] made = new CudaBuffer[1];
      made[0] = CudaBuffer.mapped(owner.memory(), address + offset, size, () -> forget(made[0]));
      buffers.add(made[0]);
      return made[0];
    }
  }

  private void forget(CudaBuffer buffer) {
    synchronized (owner) {
      buffers.removeIf(one -> one == buffer);
    }
  }

  @Override
  public void unmap(long offset, long size) {
    owner.requirePart("unmap", offset, size, bytes);
    owner.memory().sweep();
    synchronized (owner) {
      requireOpen();
      NavigableMap<Long, Mapping> parts = covering("unmap", offset, size, true);
      for (CudaBuffer buffer : buffers) {
        long start = buffer.address() - address;
        if (start < offset + size && offset < start + buffer.byteSize()) {
          throw new InvalidUsageException(
              "unmap: a buffer of "
                  + buffer.byteSize()
                  + " bytes at "
                  + start
                  + (buffer.isClosed() ? " is closed, but still in use" : " is open"),
              "close buffers, and synchronize their streams, before their memory is unmapped");
        }
      }
      NcclException failure = null;
      try (Gpu.Scope ignored = owner.gpu().enter()) {
        Driver.check(Cuda.cuMemUnmap(address + offset, size), "cuMemUnmap");
        for (Mapping part : parts.values()) {
          failure = Driver.also(failure, part.memory.release(), "cuMemRelease");
        }
        parts.clear();
      }
      if (failure != null) {
        throw failure;
      }
    }
  }

  /** Throws if works use its buffers, or communicators have registered them. */
  void requireUnused() {
    for (CudaBuffer buffer : buffers) {
      buffer.requireUnused();
      if (buffer.isHeld()) {
        throw new InvalidUsageException(
            "a buffer of the range is registered with a communicator",
            "close its registrations and windows, or their communicators, first");
      }
    }
  }

  /**
   * Closes its buffers, unmaps everything and gives it back; returns the first failure. The context
   * of the owner is current.
   */
  @Nullable NcclException closeAll(@Nullable NcclException earlier) {
    NcclException failure = earlier;
    List.copyOf(buffers).forEach(CudaBuffer::close);
    for (var part : mappings.entrySet()) {
      int result = Cuda.cuMemUnmap(address + part.getKey(), part.getValue().bytes);
      failure = Driver.also(failure, result, "cuMemUnmap");
      failure = Driver.also(failure, part.getValue().memory.release(), "cuMemRelease");
    }
    mappings.clear();
    closed = true;
    return Driver.also(failure, Cuda.cuMemAddressFree(address, bytes), "cuMemAddressFree");
  }

  private void requireOpen() {
    if (closed) {
      throw new InvalidUsageException("the address range is closed", "reserve another one");
    }
  }

  @Override
  public boolean isClosed() {
    synchronized (owner) {
      return closed;
    }
  }

  @Override
  public void close() {
    synchronized (owner) {
      if (closed) {
        return;
      }
      if (!mappings.isEmpty()) {
        throw new InvalidUsageException(
            mappings.size() + " mappings are in the address range", "unmap them before closing it");
      }
      // Buffers of no bytes may lie anywhere.
      List.copyOf(buffers).forEach(CudaBuffer::close);
      try (Gpu.Scope ignored = owner.gpu().enter()) {
        Driver.check(Cuda.cuMemAddressFree(address, bytes), "cuMemAddressFree");
      }
      closed = true;
      owner.forget(this);
    }
  }
}
