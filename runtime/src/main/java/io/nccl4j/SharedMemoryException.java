package io.nccl4j;

/**
 * There is not enough shared memory, or {@code /dev/shm} cannot be used: found before NCCL was
 * asked, which would have failed in the middle of joining. Nothing was started.
 */
public class SharedMemoryException extends SystemErrorException {
  private static final long serialVersionUID = 1L;

  /** What is needed, in bytes. */
  private final long needBytes;

  /** What there is, in bytes. */
  private final long freeBytes;

  /**
   * A failure with its remedy.
   *
   * @param message what was wrong
   * @param remedy what the caller can do, or an empty string
   * @param needBytes bytes that are needed
   * @param freeBytes bytes that there are; 0 where nothing can be created
   */
  public SharedMemoryException(String message, String remedy, long needBytes, long freeBytes) {
    super(message, remedy);
    this.needBytes = needBytes;
    this.freeBytes = freeBytes;
  }

  /** Bytes of shared memory that are needed at least. */
  public long needBytes() {
    return needBytes;
  }

  /** Bytes that there were when it was checked; 0 where nothing can be created. */
  public long freeBytes() {
    return freeBytes;
  }
}
