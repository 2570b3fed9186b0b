package io.nccl4j;

/**
 * An address for several devices' memory: what is written there reaches the copies of all of them,
 * and reading can reduce over them (NVLink SHARP). It is made for a number of devices, told each of
 * them, then bound to memory of each, and mapped like physical memory.
 *
 * <p>The devices of other processes are told there, after {@link VirtualMemory#importMulticast}.
 * Memory can be bound and mapped when all devices were added, in whichever process: binding waits
 * for them inside CUDA, which no deadline sees; so let the processes meet in between.
 */
public interface MulticastMemory extends PhysicalMemory {
  /** How many devices it joins. */
  int devices();

  /**
   * Adds a device of this process.
   *
   * @throws InvalidArgumentException if it was added, or cannot take part
   * @throws InvalidUsageException if so many devices were added as it is for
   */
  void addDevice(Device device);

  /**
   * Makes physical memory a device's copy of a part of this.
   *
   * @param offset where in this, in bytes
   * @param memory of a device that was added; not closed before it is unbound
   * @param memoryOffset first byte of the part of {@code memory}
   * @param bytes size of the part
   * @throws InvalidUsageException if devices are missing still, as far as this process can know, or
   *     the device has other memory there
   */
  void bind(long offset, PhysicalMemory memory, long memoryOffset, long bytes);

  /**
   * Undoes one {@link #bind}.
   *
   * @throws InvalidUsageException if nothing of this device was bound there
   */
  void unbind(Device device, long offset);
}
