package io.nccl4j.cuda;

/** What a device may do with mapped memory. */
public enum DeviceAccess {
  /** No access, the state of newly mapped memory. */
  NONE,
  /** Read. */
  READ,
  /** Read and write. */
  READ_WRITE
}
