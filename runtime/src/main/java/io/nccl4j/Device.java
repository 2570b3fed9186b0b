package io.nccl4j;

import java.lang.foreign.MemorySegment;
import java.util.List;

/**
 * A place where ranks run: a GPU, or on {@link Backend#HOST} one of the machine's virtual devices.
 *
 * <p>The host backend has any number of devices (ordinals 0 to {@value #MAX_HOST_ORDINAL}); they
 * share the machine's memory and processors and differ only in their ordinals, so a program written
 * for several GPUs runs unchanged. Devices are values: getting one takes no resources, and threads
 * may share them. What only GPUs have is in {@link io.nccl4j.cuda.CudaDevice}.
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
   * throw {@link io.nccl4j.memory.MemoryBudgetException} if they would exceed it.
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
    return allocate(Require.present(type, "type").byteSize(count));
  }

  /**
   * Uses a caller's native memory as a buffer, without copying. On the host backend, any native
   * segment of a shared, automatic or global arena will do; on {@code cuda} the segment must be
   * memory that CUDA can reach. Ranks in other processes cannot see such memory, so operations with
   * them go through a staging area, which takes several times as long for large buffers. Memory of
   * a shared arena, which could be closed at any time, is reduced somewhat more slowly than that of
   * an automatic or the global one, which is as fast as allocated memory.
   *
   * <p>Over a read-only segment, such as a file mapped to be read, the buffer {@linkplain
   * DeviceBuffer#isReadOnly() is read-only}, too: it can be sent from.
   *
   * @param segment remains the caller's: it must be alive while operations use it, and closing the
   *     buffer does not affect it
   * @throws InvalidArgumentException if it is a heap segment, or confined to one thread
   */
  DeviceBuffer wrap(MemorySegment segment);

  /**
   * Allocates host memory that this device can copy to and from at full speed (page-locked on
   * {@code cuda}).
   *
   * @param bytes size, 0 or more
   */
  PinnedBuffer allocatePinned(long bytes);

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

  /** Creates an event on this device. */
  Event newEvent();
}
