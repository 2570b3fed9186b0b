package io.nccl4j;

/**
 * The ranks of a communicator called different operations, or the same one with different
 * arguments; the message names both sides.
 */
public class MismatchException extends NcclException {
  private static final long serialVersionUID = 1L;

  /**
   * A failure with its remedy.
   *
   * @param message what was wrong
   * @param remedy what the caller can do, or an empty string
   */
  public MismatchException(String message, String remedy) {
    super(Result.INVALID_USAGE, message, remedy);
  }
}
