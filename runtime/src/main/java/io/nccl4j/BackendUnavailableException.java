package io.nccl4j;

/** The requested backend cannot run here; the message says why and what to install or set. */
public class BackendUnavailableException extends NcclException {
  private static final long serialVersionUID = 1L;

  /**
   * A failure with its remedy.
   *
   * @param message what was wrong
   * @param remedy what the caller can do, or an empty string
   */
  public BackendUnavailableException(String message, String remedy) {
    super(Result.SYSTEM_ERROR, message, remedy);
  }
}
