package io.nccl4j;

import java.lang.foreign.MemorySegment;
import java.util.List;

/**
 * A place where ranks run: a GPU, or on {@link Backend#HOST} one of the machine's virtual devices.
 *
 * <p>The host backend has as many devices as one asks for (ordinals 0 to {@value
 * #MAX_HOST_ORDINAL}); they share the machine's memory and processors and differ only in their
 * ordinals, so that a program written for several GPUs runs unchanged. Devices are values: getting
 * one takes no resource, and they may be shared between threads.
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
   * The most bytes that this process may take on each device, by the property {@code
   * nccl4j.device-memory-budget} or the variable {@code NCCL4J_DEVICE_MEMORY_BUDGET}; {@link
   * CommunicatorConfig#NO_BUDGET} if there is none. {@link #allocate} and joining a communicator
   * throw {@link MemoryBudgetException} where they would exceed it.
   *
   * @throws InvalidArgumentException if it cannot be read
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

  /** A name for people, for example {@code NVIDIA H200} or the processor's model. */
  String name();

  /**
   * Where the device is on the PCI bus, as in {@code /sys/bus/pci/devices}, for example {@code
   * 0000:0f:00.0}; empty where it is not on one, as on the host backend.
   */
  String pciAddress();

  /**
   * Allocates device memory, aligned to at least 4096 bytes. Its contents are undefined.
   *
   * @param bytes size, 0 or more
   * @throws InvalidArgumentException if {@code bytes} is negative
   * @throws SystemErrorException if the memory is not there
   */
  DeviceBuffer allocate(long bytes);

  /**
   * Allocates device memory for {@code count} elements.
   *
   * @throws InvalidArgumentException if {@code count} is negative or the size exceeds
   *     2<sup>63</sup>−1 bytes
   * @throws SystemErrorException if the memory is not there
   */
  default DeviceBuffer allocate(DataType type, long count) {
    return allocate(Require.bytes(type, count));
  }

  /** Whether this device can do something with its memory, and why not. */
  BackendInfo.Feature support(MemoryFeature feature);

  /**
   * Memory of this device step by step: physical memory, addresses and mappings.
   *
   * @throws InvalidUsageException if the device has no {@link MemoryFeature#VIRTUAL_MEMORY}, and on
   *     the host backend: its heap is one range of addresses that all processes map, takes physical
   *     memory when a buffer is allocated, and gives it back when that is closed
   */
  VirtualMemory newVirtualMemory();

  /** Makes a pool with the {@linkplain MemoryPoolOptions#DEFAULTS default options}. */
  default MemoryPool newMemoryPool() {
    return newMemoryPool(MemoryPoolOptions.DEFAULTS);
  }

  /**
   * Makes a pool for buffers that come and go in the order of streams.
   *
   * @throws SystemErrorException if the initial memory is not there
   */
  MemoryPool newMemoryPool(MemoryPoolOptions options);

  /**
   * Uses a caller's native memory as a buffer, without copying. On the host backend any native
   * segment of a shared, automatic or global arena will do; on {@code cuda} the segment must be
   * memory that CUDA can reach. Ranks in other processes cannot see such memory, so that operations
   * with them go through a staging area.
   *
   * @param segment stays the caller's: it must be alive while operations use it, and closing the
   *     buffer leaves it alone
   * @throws InvalidArgumentException if it is a heap segment, read-only, or confined to one thread
   */
  DeviceBuffer wrap(MemorySegment segment);

  /**
   * Uses device memory that another library allocated, by its address.
   *
   * @param devicePointer address on this device ({@code CUdeviceptr})
   * @param bytes size of the memory
   * @throws InvalidUsageException on the host backend, where only {@link #wrap(MemorySegment)} can
   *     check what it gets
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
   * program, communicators, and what was taken from the system but lies in no buffer. On the host
   * backend the latter is the process's, and every device shows it. Any thread may ask.
   */
  MemoryReport memory();

  /**
   * Binds the calling thread to the processor that serves this device best: on the host backend
   * processor {@code ordinal}, counted around those this process may use. Without it the system may
   * leave two ranks that poll on one processor. A thread keeps its binding until it ends, and hands
   * it on to threads it starts: bind threads that were made for a rank.
   *
   * @return false if the thread was left alone: it is a virtual thread, or the system offers no
   *     binding
   */
  boolean bindThread();

  /** Creates a stream on this device. */
  Stream newStream();

  /**
   * Uses a stream that another library created, so that its work and this library's run in one
   * order. Closing it waits for what was put in here and leaves the stream alone; it must live as
   * long, and not be captured by others meanwhile.
   *
   * @param stream a {@code CUstream} or {@code cudaStream_t} of this device's primary context, or 0
   *     for the legacy default stream, which cannot be captured
   * @throws InvalidArgumentException if it is a stream of another device or context. What is no
   *     stream at all cannot be told, and may end the process
   * @throws InvalidUsageException on the host backend, which shares no streams
   */
  Stream wrapStream(long stream);

  /** Creates an event on this device. */
  Event newEvent();

  /**
   * Compiles kernels of the program's own for this device, by the driver. It may wait for the
   * device: load modules, and get their kernels, before operations are under way.
   *
   * @param ptx the text that {@code nvcc -ptx}, clang or NVRTC writes
   * @throws PtxException if the driver's compiler refuses it; the exception has the compiler's log
   * @throws CudaException if the driver cannot compile here
   * @throws InvalidUsageException on the host backend, which runs no kernels
   */
  CudaModule loadModule(String ptx);
}
