package io.nccl4j;

/** An argument is wrong: a count, type, root, rank, buffer or setting. Nothing was started. */
public class InvalidArgumentException extends NcclException {
  private static final long serialVersionUID = 1L;

  /**
   * A failure with its remedy.
   *
   * @param message what was wrong
   * @param remedy what the caller can do, or an empty string
   */
  public InvalidArgumentException(String message, String remedy) {
    super(Result.INVALID_ARGUMENT, message, remedy);
  }
}
