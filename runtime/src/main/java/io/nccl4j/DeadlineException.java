package io.nccl4j;

/** A deadline passed; the message says what was waited for and which ranks had not arrived. */
public class DeadlineException extends NcclException {
  private static final long serialVersionUID = 1L;

  /**
   * A failure with its remedy.
   *
   * @param message what was wrong
   * @param remedy what the caller can do, or an empty string
   */
  public DeadlineException(String message, String remedy) {
    super(Result.TIMEOUT, message, remedy);
  }
}
