package io.nccl4j;

/** What a device may do with mapped memory. */
public enum DeviceAccess {
  /** Nothing; so is memory after it was mapped. */
  NONE,
  /** Read. */
  READ,
  /** Read and write. */
  READ_WRITE
}
