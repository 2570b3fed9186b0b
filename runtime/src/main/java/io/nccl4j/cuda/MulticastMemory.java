package io.nccl4j.cuda;

import io.nccl4j.Device;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.Unstable;

/**
 * An address for the memory of several devices: writes reach every device's copy, and reads can
 * reduce over the copies (NVLink SHARP). It is created for a number of devices; each is added, then
 * bound to its own memory, and the whole is mapped like physical memory.
 *
 * <p>Other processes add their devices themselves, after {@link VirtualMemory#importMulticast}.
 * Memory can be bound and mapped once all devices have been added, in whichever process: binding
 * waits for them inside CUDA, without a deadline, so let the processes meet in between.
 */
@Unstable
public interface MulticastMemory extends PhysicalMemory {
  /** How many devices it joins. */
  int devices();

  /**
   * Adds a device of this process.
   *
   * @throws InvalidArgumentException if it was already added, or cannot take part
   * @throws InvalidUsageException if all its devices have been added
   */
  void addDevice(Device device);

  /**
   * Makes physical memory a device's copy of a part of this memory.
   *
   * @param offset position in this memory, in bytes
   * @param memory of an added device; it cannot be closed before it is unbound
   * @param memoryOffset first byte of the part of {@code memory}
   * @param bytes size of the part
   * @throws InvalidUsageException if devices are still missing, as far as this process can know, or
   *     the device has other memory there
   */
  void bind(long offset, PhysicalMemory memory, long memoryOffset, long bytes);

  /**
   * Undoes one {@link #bind}.
   *
   * @throws InvalidUsageException if no memory of this device is bound there
   */
  void unbind(Device device, long offset);
}
