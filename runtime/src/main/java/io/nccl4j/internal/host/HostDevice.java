package io.nccl4j.internal.host;

import io.nccl4j.Backend;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Event;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.PinnedBuffer;
import io.nccl4j.Stream;
import io.nccl4j.internal.host.memory.DeviceMemory;
import io.nccl4j.internal.host.memory.HostBuffer;
import io.nccl4j.internal.host.memory.HostPinnedBuffer;
import io.nccl4j.internal.host.memory.HostPool;
import io.nccl4j.internal.host.memory.ProcessMemory;
import io.nccl4j.internal.machine.Affinity;
import io.nccl4j.internal.machine.Machine;
import io.nccl4j.internal.schedule.ScheduledEvent;
import io.nccl4j.internal.spi.BackendDevice;
import io.nccl4j.internal.spi.MemoryBook;
import io.nccl4j.internal.spi.NativeSegments;
import io.nccl4j.memory.MemoryPool;
import io.nccl4j.memory.MemoryPoolOptions;
import io.nccl4j.memory.MemoryPurpose;
import io.nccl4j.memory.MemoryReport;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/** One of the virtual devices of this machine. There is one object per ordinal. */
final class HostDevice implements BackendDevice {
  private final int ordinal;
  private final DeviceMemory memory = new DeviceMemory(this);
  private final DeviceRanks ranks = new DeviceRanks();

  HostDevice(int ordinal) {
    this.ordinal = ordinal;
  }

  DeviceRanks ranks() {
    return ranks;
  }

  /** What belongs to no communicator. */
  MemoryBook.Account account() {
    return memory.account();
  }

  @Override
  public Backend backend() {
    return Backend.HOST;
  }

  @Override
  public int ordinal() {
    return ordinal;
  }

  @Override
  public String name() {
    return Machine.processorName();
  }

  @Override
  public String pciAddress() {
    return "";
  }

  @Override
  public DeviceBuffer allocate(long bytes) {
    requireSize(bytes);
    return allocate(account(), MemoryPurpose.USER, bytes);
  }

  /** Memory that is booked on an account, within the device's budget. */
  DeviceBuffer allocate(MemoryBook.Account owner, MemoryPurpose purpose, long bytes) {
    return new HostBuffer(
        this, memory.allocate(owner, purpose, bytes), ProcessMemory.self().heap().isShareable());
  }

  @Override
  public MemoryPool newMemoryPool(MemoryPoolOptions options) {
    return HostPool.open(memory, options);
  }

  @Override
  public DeviceBuffer wrap(@Nullable MemorySegment segment) {
    return new HostBuffer(this, NativeSegments.requireSharable(segment));
  }

  /** Over memory that is collected when nothing refers to it any more. */
  @Override
  public DeviceBuffer wrapLike(DeviceBuffer own) {
    return wrap(Arena.ofAuto().allocate(own.byteSize(), DataType.FLOAT64.byteSize()));
  }

  @Override
  public PinnedBuffer allocatePinned(long bytes) {
    requireSize(bytes);
    ProcessMemory.self().heap().sweepIfWaiting();
    return new HostPinnedBuffer(memory.account(), bytes);
  }

  @Override
  public MemoryReport memory() {
    ProcessMemory.self().heap().sweepIfWaiting();
    return ProcessMemory.self().book().report(toString(), this);
  }

  @Override
  public boolean bindThread() {
    return Affinity.bindThread(ordinal);
  }

  @Override
  public Stream newStream() {
    return HostStream.open(this, ranks);
  }

  @Override
  public Event newEvent() {
    return new ScheduledEvent(this, new HostEvent(ranks));
  }

  private static void requireSize(long bytes) {
    if (bytes < 0) {
      throw new InvalidArgumentException(
          "cannot allocate " + bytes + " bytes", "pass a size of 0 or more");
    }
  }

  @Override
  public String toString() {
    return "host device " + ordinal;
  }
}
