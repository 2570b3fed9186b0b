package io.nccl4j.internal.cuda.memory;

import io.nccl4j.Device;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.bindings.cuda.Cuda;
import io.nccl4j.cuda.MemoryFeature;
import io.nccl4j.cuda.MulticastMemory;
import io.nccl4j.cuda.PhysicalMemory;
import io.nccl4j.internal.cuda.driver.Driver;
import io.nccl4j.internal.cuda.driver.Gpu;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** A multicast object of CUDA, the devices of this process in it, and what is bound. */
@SuppressWarnings("try") // a scope is entered, not used
final class CudaMulticast extends CudaPhysical implements MulticastMemory {
  private record Binding(Gpu gpu, CudaPhysical memory, long offset, long bytes) {
    boolean overlaps(long start, long size) {
      return start < offset + bytes && offset < start + size;
    }
  }

  private final int devices;

  /** Whether other processes can have added devices. */
  private final boolean isShared;

  private final List<Gpu> added = new ArrayList<>();
  private final List<Binding> bindings = new ArrayList<>();

  CudaMulticast(
      CudaVirtualMemory owner,
      long handle,
      long bytes,
      int handleTypes,
      int devices,
      boolean isImported) {
    super(owner, handle, bytes, handleTypes, null);
    this.devices = devices;
    this.isShared = isImported || handleTypes != 0;
  }

  @Override
  public int devices() {
    return devices;
  }

  @Override
  public void addDevice(@Nullable Device device) {
    Gpu own = owner().require(device);
    MemorySupport.require(own, MemoryFeature.MULTICAST);
    synchronized (owner()) {
      if (added.contains(own)) {
        throw new InvalidArgumentException(
            own + " was added to the multicast memory", "add each device once");
      }
      if (added.size() == devices) {
        throw new InvalidUsageException(
            "the multicast memory has its " + devices + " devices", "make it for more devices");
      }
      requireOpen();
      try (Gpu.Scope ignored = own.enter()) {
        Driver.check(Cuda.cuMulticastAddDevice(handle(), own.handle()), "cuMulticastAddDevice");
        added.add(own);
      }
    }
  }

  @Override
  String unready() {
    return isShared || added.size() == devices
        ? ""
        : "the multicast memory has " + added.size() + " of its " + devices + " devices";
  }

  @Override
  public void bind(long offset, @Nullable PhysicalMemory memory, long memoryOffset, long bytes) {
    if (!(memory instanceof CudaPhysical own) || memory instanceof CudaMulticast) {
      throw new InvalidArgumentException(
          "bind: the memory is " + (memory == null ? "null" : "not physical memory of a device"),
          "pass what create returned");
    }
    Gpu gpu = own.owner().gpu();
    owner().requirePart("bind", offset, bytes, byteSize());
    owner().requirePart("bind, of the memory", memoryOffset, bytes, own.byteSize());
    synchronized (owner()) {
      if (!unready().isEmpty()) {
        throw new InvalidUsageException("bind: " + unready(), "add all of them first");
      }
      if (!added.contains(gpu)) {
        throw new InvalidUsageException(
            "bind: " + gpu + ", on which the memory lies, was not added", "add it first");
      }
      for (Binding other : bindings) {
        if (other.gpu == gpu && other.overlaps(offset, bytes)) {
          throw new InvalidUsageException(
              "bind: " + gpu + " has memory bound at " + other.offset, "unbind that first");
        }
      }
      requireOpen();
      try (Gpu.Scope ignored = gpu.enter()) {
        own.hold();
        int result =
            Cuda.cuMulticastBindMem(handle(), offset, own.handle(), memoryOffset, bytes, 0);
        if (result != Driver.SUCCESS) {
          Driver.check(own.release(), "cuMemRelease");
          throw Driver.failure(result, "cuMulticastBindMem");
        }
        hold();
        bindings.add(new Binding(gpu, own, offset, bytes));
      }
    }
  }

  @Override
  public void unbind(@Nullable Device device, long offset) {
    Gpu own = owner().require(device);
    synchronized (owner()) {
      for (Iterator<Binding> i = bindings.iterator(); i.hasNext(); ) {
        Binding binding = i.next();
        if (binding.gpu == own && binding.offset == offset) {
          NcclException failure;
          try (Gpu.Scope ignored = own.enter()) {
            int result = unbind(binding);
            Driver.check(result, "cuMulticastUnbind");
            i.remove();
            failure = let(binding, null);
          }
          if (failure != null) {
            throw failure;
          }
          return;
        }
      }
    }
    throw new InvalidUsageException(
        "unbind: " + own + " has bound nothing at " + offset, "pass where it was bound");
  }

  private int unbind(Binding binding) {
    return Cuda.cuMulticastUnbind(handle(), binding.gpu.handle(), binding.offset, binding.bytes);
  }

  /** Lets go what a binding held; returns the first failure. */
  private @Nullable NcclException let(Binding binding, @Nullable NcclException earlier) {
    NcclException failure = Driver.also(earlier, binding.memory.release(), "cuMemRelease");
    return Driver.also(failure, release(), "cuMemRelease");
  }

  /** Unbinds everything; returns the first failure. The context of the owner is current. */
  @Nullable NcclException unbindAll(@Nullable NcclException earlier) {
    NcclException failure = earlier;
    for (Binding binding : bindings) {
      failure = Driver.also(failure, unbind(binding), "cuMulticastUnbind");
      failure = let(binding, failure);
    }
    bindings.clear();
    return failure;
  }

  private void requireOpen() {
    if (isClosed()) {
      throw new InvalidUsageException("the multicast memory is closed", "create another one");
    }
  }
}
