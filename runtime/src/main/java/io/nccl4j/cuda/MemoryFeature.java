package io.nccl4j.cuda;

import io.nccl4j.Feature;

/** A memory capability that not every device has; see {@link CudaDevice#support}. */
public enum MemoryFeature {
  /** Separate physical memory and addresses: {@link VirtualMemory}. */
  VIRTUAL_MEMORY(Feature.VIRTUAL_MEMORY, "a device with virtual memory management"),
  /** Sharing physical memory with other processes of the machine by file descriptor. */
  FILE_DESCRIPTORS(Feature.FILE_DESCRIPTORS, "a device with virtual memory management"),
  /** Sharing physical memory with other machines by fabric handle. */
  FABRIC_HANDLES(Feature.FABRIC_HANDLES, "driver 12.3, NVLink between machines, IMEX"),
  /** One address for the memory of several devices: {@link MulticastMemory}. */
  MULTICAST(Feature.MULTICAST, "driver 12.1, compute capability 9.0, NVSwitch");

  private final Feature feature;
  private final String needs;

  MemoryFeature(Feature feature, String needs) {
    this.feature = feature;
    this.needs = needs;
  }

  /** The same among all features. */
  public Feature feature() {
    return feature;
  }

  /** A human-readable name. */
  public String label() {
    return feature.label();
  }

  /** A human-readable requirement. */
  public String needs() {
    return needs;
  }
}
