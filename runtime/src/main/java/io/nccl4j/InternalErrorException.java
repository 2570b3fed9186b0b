package io.nccl4j;

/** A broken invariant inside this library: please report it with the message. */
public class InternalErrorException extends NcclException {
  private static final long serialVersionUID = 1L;

  /**
   * A failure with its remedy.
   *
   * @param message what was wrong
   * @param remedy what the caller can do, or an empty string
   */
  public InternalErrorException(String message, String remedy) {
    super(Result.INTERNAL_ERROR, message, remedy);
  }
}
