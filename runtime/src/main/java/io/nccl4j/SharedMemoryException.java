package io.nccl4j;

/**
 * There is not enough shared memory, or {@code /dev/shm} cannot be used. This is checked before
 * NCCL is called, which would have failed in the middle of joining. Nothing was started.
 */
public class SharedMemoryException extends SystemErrorException {
  private static final long serialVersionUID = 1L;

  /** Bytes needed. */
  private final long needBytes;

  /** Bytes available. */
  private final long freeBytes;

  /**
   * A failure with its remedy.
   *
   * @param message what was wrong
   * @param remedy what the caller can do, or an empty string
   * @param needBytes bytes needed
   * @param freeBytes bytes available; 0 if nothing can be created
   */
  public SharedMemoryException(String message, String remedy, long needBytes, long freeBytes) {
    super(message, remedy);
    this.needBytes = needBytes;
    this.freeBytes = freeBytes;
  }

  /** The least shared memory needed, in bytes. */
  public long needBytes() {
    return needBytes;
  }

  /** Bytes available when it was checked; 0 if nothing can be created. */
  public long freeBytes() {
    return freeBytes;
  }
}
