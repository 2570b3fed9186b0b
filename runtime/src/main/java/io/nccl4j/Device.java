package io.nccl4j;

import java.lang.foreign.MemorySegment;
import java.util.List;

/**
 * A place where ranks run: a GPU, or on {@link Backend#HOST} one of the machine's virtual devices.
 *
 * <p>The host backend has any number of devices (ordinals 0 to {@value #MAX_HOST_ORDINAL}); they
 * share the machine's memory and processors and differ only in their ordinals, so a program written
 * for several GPUs runs unchanged. Devices are values: getting one takes no resources, and threads
 * may share them.
 */
public interface Device {
  /** The largest ordinal of a host device. */
  int MAX_HOST_ORDINAL = 1023;

  /**
   * The device with this ordinal on the backend that {@link Backend#AUTO} chooses.
   *
   * @throws InvalidArgumentException if there is no such device
   */
  static Device get(int ordinal) {
    return get(Backend.AUTO, ordinal);
  }

  /**
   * The device with this ordinal.
   *
   * @throws InvalidArgumentException if there is no such device
   * @throws BackendUnavailableException if the backend cannot run here; the message says why
   */
  static Device get(Backend backend, int ordinal) {
    return Provider.get().device(backend, ordinal);
  }

  /**
   * All devices of a backend: the GPUs, or one host device per available processor.
   *
   * @throws BackendUnavailableException if the backend cannot run here; the message says why
   */
  static List<Device> all(Backend backend) {
    return Provider.get().devices(backend);
  }

  /**
   * The most bytes that this process may take on each device, from the property {@code
   * nccl4j.device-memory-budget} or the variable {@code NCCL4J_DEVICE_MEMORY_BUDGET}; {@link
   * CommunicatorConfig#NO_BUDGET} if neither is set. {@link #allocate} and joining a communicator
   * throw {@link MemoryBudgetException} if they would exceed it.
   *
   * @throws InvalidArgumentException if the value is invalid
   */
  static long memoryBudget() {
    String text = System.getProperty("nccl4j.device-memory-budget");
    text = text == null ? System.getenv("NCCL4J_DEVICE_MEMORY_BUDGET") : text;
    return text == null || text.isEmpty()
        ? CommunicatorConfig.NO_BUDGET
        : ByteText.parse("device-memory-budget", text);
  }

  /** The backend, never {@link Backend#AUTO}. */
  Backend backend();

  /** The device's number on its backend, from 0. */
  int ordinal();

  /** A human-readable name, for example {@code NVIDIA H200} or the processor's model. */
  String name();

  /**
   * Where the device is on the PCI bus, as in {@code /sys/bus/pci/devices}, for example {@code
   * 0000:0f:00.0}; empty if it is not on one, as on the host backend.
   */
  String pciAddress();

  /**
   * Allocates device memory, aligned to at least 4096 bytes. Its contents are undefined.
   *
   * @param bytes size, 0 or more
   * @throws InvalidArgumentException if {@code bytes} is negative
   * @throws SystemErrorException if there is not enough memory
   */
  DeviceBuffer allocate(long bytes);

  /**
   * Allocates device memory for {@code count} elements.
   *
   * @throws InvalidArgumentException if {@code count} is negative or the size exceeds
   *     2<sup>63</sup>−1 bytes
   * @throws SystemErrorException if there is not enough memory
   */
  default DeviceBuffer allocate(DataType type, long count) {
    return allocate(Require.bytes(type, count));
  }

  /** Whether this device supports a memory feature, and if not, why. */
  BackendInfo.FeatureInfo support(MemoryFeature feature);

  /**
   * Opens step-by-step access to this device's memory: physical memory, addresses and mappings.
   *
   * @throws InvalidUsageException if the device has no {@link MemoryFeature#VIRTUAL_MEMORY}, and
   *     always on the host backend, whose heap is one range of addresses that all processes map: it
   *     takes physical memory when a buffer is allocated and returns it when the buffer is closed
   */
  VirtualMemory newVirtualMemory();

  /** Creates a pool with the {@linkplain MemoryPoolOptions#DEFAULTS default options}. */
  default MemoryPool newMemoryPool() {
    return newMemoryPool(MemoryPoolOptions.DEFAULTS);
  }

  /**
   * Creates a pool for buffers that are allocated and freed in stream order.
   *
   * @throws SystemErrorException if there is not enough memory for the initial size
   */
  MemoryPool newMemoryPool(MemoryPoolOptions options);

  /**
   * Uses a caller's native memory as a buffer, without copying. On the host backend, any native
   * segment of a shared, automatic or global arena will do; on {@code cuda} the segment must be
   * memory that CUDA can reach. Ranks in other processes cannot see such memory, so operations with
   * them go through a staging area.
   *
   * @param segment remains the caller's: it must be alive while operations use it, and closing the
   *     buffer does not affect it
   * @throws InvalidArgumentException if it is a heap segment, read-only, or confined to one thread
   */
  DeviceBuffer wrap(MemorySegment segment);

  /**
   * Uses device memory that another library allocated, by its address.
   *
   * @param devicePointer address on this device ({@code CUdeviceptr})
   * @param bytes size of the memory
   * @throws InvalidUsageException on the host backend, where only {@link #wrap(MemorySegment)} can
   *     check its argument
   */
  DeviceBuffer wrap(long devicePointer, long bytes);

  /**
   * Allocates host memory that this device can copy to and from at full speed (page-locked on
   * {@code cuda}).
   *
   * @param bytes size, 0 or more
   */
  PinnedBuffer allocatePinned(long bytes);

  /**
   * The memory that this process has taken on this device, in bytes, by owner: buffers of the
   * program, communicators, and memory taken from the system that is in no buffer. On the host
   * backend the latter belongs to the process, and every device shows it. Any thread may call this.
   */
  MemoryReport memory();

  /**
   * Binds the calling thread to the processor that serves this device best: on the host backend
   * processor {@code ordinal} of those that this process may use, wrapping around. Unbound, two
   * polling ranks may be left on one processor. A thread keeps its binding until it ends, and
   * threads that it starts inherit it: bind only threads created for a rank.
   *
   * @return false if the thread was not bound: it is a virtual thread, or the system does not
   *     support binding
   */
  boolean bindThread();

  /** Creates a stream on this device. */
  Stream newStream();

  /**
   * Uses a stream that another library created, so that its work and this library's run in one
   * order. Closing it waits for the work queued here but leaves the stream open; until then it must
   * stay alive and must not be captured by others.
   *
   * @param stream a {@code CUstream} or {@code cudaStream_t} of this device's primary context, or 0
   *     for the legacy default stream, which cannot be captured
   * @throws InvalidArgumentException if it is a stream of another device or context. A value that
   *     is no stream at all cannot be detected, and may crash the process
   * @throws InvalidUsageException on the host backend, which cannot share streams
   */
  Stream wrapStream(long stream);

  /** Creates an event on this device. */
  Event newEvent();

  /**
   * Has the driver compile the program's own kernels for this device. This may wait for the device:
   * load modules, and get their kernels, before operations are under way.
   *
   * @param ptx PTX text, as generated by {@code nvcc -ptx}, clang or NVRTC
   * @throws PtxException if the driver's compiler refuses it; the exception holds the compiler's
   *     log
   * @throws CudaException if the driver cannot compile here
   * @throws InvalidUsageException on the host backend, which runs no kernels
   */
  CudaModule loadModule(String ptx);
}
