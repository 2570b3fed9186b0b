package io.nccl4j.internal.memory;

import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Device;
import io.nccl4j.memory.MemoryBudgetException;
import java.util.Optional;
import java.util.function.LongSupplier;
import java.util.function.Supplier;

/** Holds buffers to the budget of their device, {@link Device#memoryBudget()}. Thread-safe. */
public final class DeviceBudget {
  private static final Object LOCK = new Object();

  private DeviceBudget() {}

  /**
   * Allocates, if that does not exceed the budget; allocations that are held to one are made one
   * after the other.
   *
   * @param more bytes to be allocated
   * @param taken bytes that are taken on the device
   * @throws MemoryBudgetException if it would
   */
  public static <T> T allocate(
      Device device, long more, LongSupplier taken, Supplier<T> allocation) {
    long budget = Device.memoryBudget();
    if (budget == CommunicatorConfig.NO_BUDGET) {
      return allocation.get();
    }
    synchronized (LOCK) {
      long now = taken.getAsLong();
      if (more > budget - now) {
        throw new MemoryBudgetException(
            "cannot allocate "
                + more
                + " bytes on "
                + device
                + ": "
                + now
                + " bytes are taken, and its budget is "
                + budget,
            "close buffers or communicators, or raise NCCL4J_DEVICE_MEMORY_BUDGET",
            Optional.empty());
      }
      return allocation.get();
    }
  }
}
