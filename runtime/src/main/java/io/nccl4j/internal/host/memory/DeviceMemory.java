package io.nccl4j.internal.host.memory;

import io.nccl4j.Device;
import io.nccl4j.internal.memory.DeviceBudget;
import io.nccl4j.internal.spi.MemoryBook;
import io.nccl4j.memory.MemoryPurpose;
import org.jspecify.annotations.Nullable;

/** What a device has taken that belongs to no communicator. Thread-safe. */
public final class DeviceMemory {
  private final Device device;
  private MemoryBook.@Nullable Account account;

  /** Nothing yet. */
  public DeviceMemory(Device device) {
    this.device = device;
  }

  Device device() {
    return device;
  }

  /** Where it is booked. */
  public synchronized MemoryBook.Account account() {
    if (account == null) {
      account = ProcessMemory.self().book().open(device.toString(), device);
    }
    return account;
  }

  /** Memory that is booked on an account, as long as it is within the device's budget. */
  public HostHeap.Block allocate(MemoryBook.Account owner, MemoryPurpose purpose, long bytes) {
    HostHeap heap = ProcessMemory.self().heap();
    return DeviceBudget.allocate(
        device,
        bytes,
        () -> {
          heap.sweepIfWaiting();
          return ProcessMemory.self().book().bytes(device, heap.place());
        },
        () -> heap.allocate(owner, purpose, bytes));
  }
}
