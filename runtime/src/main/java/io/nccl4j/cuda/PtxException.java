package io.nccl4j.cuda;

import io.nccl4j.InvalidArgumentException;

/** The driver's compiler refused a module's PTX; nothing was loaded. */
public class PtxException extends InvalidArgumentException {
  private static final long serialVersionUID = 1L;

  /** The compiler's output. */
  private final String log;

  /**
   * A refusal.
   *
   * @param message what was wrong
   * @param remedy what the caller can do, or an empty string
   * @param log the output of the driver's compiler; may be empty
   */
  public PtxException(String message, String remedy, String log) {
    super(message, remedy);
    this.log = log;
  }

  /** The unchanged output of the driver's compiler; may be empty. */
  public String log() {
    return log;
  }
}
