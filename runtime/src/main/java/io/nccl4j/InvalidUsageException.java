package io.nccl4j;

/**
 * The call is wrong in this state: a closed object, a freed buffer, two threads in one
 * communicator. Nothing was started.
 */
public class InvalidUsageException extends NcclException {
  private static final long serialVersionUID = 1L;

  /**
   * A failure with its remedy.
   *
   * @param message what was wrong
   * @param remedy what the caller can do, or an empty string
   */
  public InvalidUsageException(String message, String remedy) {
    super(Result.INVALID_USAGE, message, remedy);
  }
}
