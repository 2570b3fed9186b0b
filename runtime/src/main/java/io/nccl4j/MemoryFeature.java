package io.nccl4j;

/** A memory capability that not every device has; see {@link Device#support}. */
public enum MemoryFeature {
  /** Separate physical memory and addresses: {@link VirtualMemory}. */
  VIRTUAL_MEMORY("cuMem virtual memory", "a device with virtual memory management"),
  /** Sharing physical memory with other processes of the machine by file descriptor. */
  FILE_DESCRIPTORS(
      "memory of other processes by file descriptor", "a device with virtual memory management"),
  /** Sharing physical memory with other machines by fabric handle. */
  FABRIC_HANDLES(
      "memory of other machines by fabric handle", "driver 12.3, NVLink between machines, IMEX"),
  /** One address for the memory of several devices: {@link MulticastMemory}. */
  MULTICAST("multicast (NVLS)", "driver 12.1, compute capability 9.0, NVSwitch");

  private final String label;
  private final String needs;

  MemoryFeature(String label, String needs) {
    this.label = label;
    this.needs = needs;
  }

  /** A human-readable name. */
  public String label() {
    return label;
  }

  /** A human-readable requirement. */
  public String needs() {
    return needs;
  }
}
