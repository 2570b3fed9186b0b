package io.nccl4j;

/**
 * The operating system refused something: memory, a descriptor, a socket; the message carries the
 * errno.
 */
public class SystemErrorException extends NcclException {
  private static final long serialVersionUID = 1L;

  /**
   * A failure with its remedy.
   *
   * @param message what was wrong
   * @param remedy what the caller can do, or an empty string
   */
  public SystemErrorException(String message, String remedy) {
    super(Result.SYSTEM_ERROR, message, remedy);
  }
}
