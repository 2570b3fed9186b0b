package io.nccl4j.cuda;

import io.nccl4j.Device;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.SystemErrorException;
import java.util.Set;

/**
 * Memory of a GPU step by step: physical memory, addresses, and mappings between them. It owns
 * everything created through it; closing it releases it all.
 *
 * <pre>{@code
 * try (VirtualMemory memory = CudaDevice.of(device).newVirtualMemory()) {
 *   long bytes = memory.recommendedGranularity();
 *   AddressRange range = memory.reserve(16 * bytes);
 *   range.map(0, memory.create(bytes));
 *   range.setAccess(0, bytes, DeviceAccess.READ_WRITE, List.of(device));
 *   DeviceBuffer buffer = range.buffer(0, bytes);
 *   ...
 *   range.map(bytes, memory.create(bytes)); // grows in place
 * }
 * }</pre>
 *
 * <p>Close buffers, mappings and bindings first, then ranges and physical memory; any other order
 * is refused with an {@link InvalidUsageException} that says what is in the way. No call waits for
 * the device: synchronise the streams that use memory before unmapping it.
 *
 * <p>All sizes, offsets and addresses are in bytes and multiples of {@link #minimumGranularity()}.
 * Thread-safe. Only GPUs have it: the host backend's heap is one range of addresses that all
 * processes map, and takes and returns physical memory as buffers come and go.
 */
public interface VirtualMemory extends AutoCloseable {
  /** The device. */
  Device device();

  /** What sizes and addresses must be multiples of, in bytes. */
  long minimumGranularity();

  /** What sizes should be multiples of, so that the device uses its largest pages, in bytes. */
  long recommendedGranularity();

  /** {@code bytes} rounded up to the recommended granularity. */
  default long roundUp(long bytes) {
    long unit = recommendedGranularity();
    return Math.ceilDivExact(bytes, unit) * unit;
  }

  /**
   * Takes physical memory of the device that no other process can import.
   *
   * @throws InvalidArgumentException if the size is not a multiple of the granularity, or 0
   * @throws SystemErrorException if there is not enough memory
   */
  default PhysicalMemory create(long bytes) {
    return create(bytes, Set.of());
  }

  /**
   * Allocates physical memory of the device that can be exported.
   *
   * @param handles {@link MemoryFeature#FILE_DESCRIPTORS}, {@link MemoryFeature#FABRIC_HANDLES},
   *     both or none
   * @throws InvalidUsageException if the device does not support that; the message says why
   */
  PhysicalMemory create(long bytes, Set<MemoryFeature> handles);

  /**
   * Imports physical memory that another process, or another object of this one, has exported.
   *
   * @param descriptor from {@link PhysicalMemory#exportDescriptor()}; it remains the caller's
   * @param bytes its size, which CUDA does not tell
   */
  PhysicalMemory importDescriptor(int descriptor, long bytes);

  /**
   * Imports physical memory that another process or machine has exported.
   *
   * @param handle from {@link PhysicalMemory#exportFabric()}
   * @param bytes its size, which CUDA does not tell
   */
  PhysicalMemory importFabric(byte[] handle, long bytes);

  /**
   * Reserves addresses, without memory behind them.
   *
   * @throws InvalidArgumentException if the size is not a multiple of the granularity, or 0
   */
  AddressRange reserve(long bytes);

  /**
   * What sizes and offsets of multicast memory must be multiples of, in bytes.
   *
   * @param bytes the size wanted
   * @param devices how many devices it is to join, 2 or more
   * @param recommended whether to ask for the best one instead of the smallest
   * @throws InvalidUsageException if there is no multicast; see {@link CudaDevice#support}
   */
  long multicastGranularity(long bytes, int devices, boolean recommended);

  /**
   * Creates multicast memory, of which each device will have a copy. It takes no memory itself.
   *
   * @param bytes a multiple of {@link #multicastGranularity}
   * @param devices how many devices it is to join, 2 or more
   * @param handles as for {@link #create(long, Set)}
   * @throws InvalidUsageException if there is no multicast; see {@link CudaDevice#support}
   */
  MulticastMemory createMulticast(long bytes, int devices, Set<MemoryFeature> handles);

  /**
   * Imports multicast memory that another process has exported.
   *
   * @param descriptor from {@link PhysicalMemory#exportDescriptor()}; it remains the caller's
   * @param bytes the size it was created with
   * @param devices the number of devices it was created for
   */
  MulticastMemory importMulticast(int descriptor, long bytes, int devices);

  /** Physical memory that this object holds, in bytes, without imported memory. */
  long physicalBytes();

  /**
   * Releases everything created through it: buffers, mappings, bindings, ranges, physical memory.
   * Memory that another {@code VirtualMemory} has mapped or bound lives until that one releases it.
   * If something fails, the rest is still released. Closing twice does nothing.
   *
   * @throws InvalidUsageException if works use its buffers, or a communicator has registered one;
   *     nothing is released
   * @throws NcclException if CUDA refused something; the rest was released
   */
  @Override
  void close();
}
