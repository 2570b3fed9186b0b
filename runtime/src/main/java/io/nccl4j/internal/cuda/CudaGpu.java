package io.nccl4j.internal.cuda;

import io.nccl4j.Backend;
import io.nccl4j.BackendInfo;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Event;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.PinnedBuffer;
import io.nccl4j.Stream;
import io.nccl4j.cuda.CudaModule;
import io.nccl4j.cuda.MemoryFeature;
import io.nccl4j.cuda.VirtualMemory;
import io.nccl4j.internal.cuda.driver.Gpu;
import io.nccl4j.internal.cuda.driver.GpuDevice;
import io.nccl4j.internal.cuda.memory.CudaBuffer;
import io.nccl4j.internal.cuda.memory.CudaPinnedBuffer;
import io.nccl4j.internal.cuda.memory.CudaPool;
import io.nccl4j.internal.cuda.memory.CudaVirtualMemory;
import io.nccl4j.internal.cuda.memory.DeviceMemory;
import io.nccl4j.internal.cuda.memory.MemorySupport;
import io.nccl4j.internal.cuda.module.PtxModule;
import io.nccl4j.internal.machine.Affinity;
import io.nccl4j.internal.schedule.ScheduledEvent;
import io.nccl4j.internal.spi.BackendDevice;
import io.nccl4j.internal.spi.NativeSegments;
import io.nccl4j.memory.MemoryPool;
import io.nccl4j.memory.MemoryPoolOptions;
import io.nccl4j.memory.MemoryPurpose;
import io.nccl4j.memory.MemoryReport;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/** A GPU as the API has it: it makes what lives on one. */
final class CudaGpu implements GpuDevice, BackendDevice {
  private final Gpu gpu;
  private final CudaStreams streams = new CudaStreams();
  private final DeviceMemory memory;

  CudaGpu(int ordinal) {
    gpu = new Gpu(ordinal);
    memory = new DeviceMemory(this, gpu, streams);
  }

  @Override
  public Gpu gpu() {
    return gpu;
  }

  DeviceMemory deviceMemory() {
    return memory;
  }

  @Override
  public Backend backend() {
    return Backend.CUDA;
  }

  @Override
  public int ordinal() {
    return gpu.ordinal();
  }

  @Override
  public String name() {
    return gpu.name();
  }

  @Override
  public String pciAddress() {
    return gpu.pciAddress();
  }

  @Override
  public boolean bindThread() {
    return Affinity.bindThreadNear(pciAddress());
  }

  // ---- memory

  @Override
  public DeviceBuffer allocate(long bytes) {
    requireSize(bytes);
    return CudaBuffer.allocateWithin(memory, memory.account(), MemoryPurpose.USER, bytes);
  }

  @Override
  public PinnedBuffer allocatePinned(long bytes) {
    requireSize(bytes);
    memory.sweep();
    return new CudaPinnedBuffer(memory, bytes);
  }

  @Override
  public DeviceBuffer wrap(@Nullable MemorySegment segment) {
    MemorySegment sharable = NativeSegments.requireSharable(segment);
    return sharable.isReadOnly()
        ? CudaBuffer.wrapReadOnly(memory, sharable.address(), sharable.byteSize())
        : wrap(sharable.address(), sharable.byteSize());
  }

  @Override
  public DeviceBuffer wrap(long devicePointer, long bytes) {
    requireSize(bytes);
    return CudaBuffer.wrap(memory, devicePointer, bytes);
  }

  /** Over the buffer's own memory: a GPU does not reach that of the host. */
  @Override
  public DeviceBuffer wrapLike(DeviceBuffer own) {
    return wrap(own.address(), own.byteSize());
  }

  private static void requireSize(long bytes) {
    if (bytes < 0) {
      throw new InvalidArgumentException(
          "the size is " + bytes + " bytes", "pass a size of 0 or more");
    }
  }

  @Override
  public MemoryPool newMemoryPool(MemoryPoolOptions options) {
    return CudaPool.open(memory, options);
  }

  @Override
  public VirtualMemory newVirtualMemory() {
    return new CudaVirtualMemory(memory);
  }

  @Override
  public BackendInfo.FeatureInfo support(MemoryFeature feature) {
    return MemorySupport.of(gpu, feature);
  }

  @Override
  public MemoryReport memory() {
    memory.sweep();
    return memory.book().report(toString(), this);
  }

  // ---- streams, events, modules

  @Override
  public Stream newStream() {
    return CudaStream.open(memory, streams);
  }

  @Override
  public Stream wrapStream(long stream) {
    return CudaStream.wrap(memory, streams, stream);
  }

  @Override
  public Event newEvent() {
    return new ScheduledEvent(this, new CudaEvent(gpu));
  }

  @Override
  public CudaModule loadModule(@Nullable String ptx) {
    return PtxModule.load(this, streams, ptx);
  }

  @Override
  public String toString() {
    return gpu.toString();
  }
}
