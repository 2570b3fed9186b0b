package io.nccl4j;

/** The driver's compiler refuses a module's PTX; nothing was loaded. */
public class PtxException extends InvalidArgumentException {
  private static final long serialVersionUID = 1L;

  /** What the compiler says. */
  private final String log;

  /**
   * A refusal.
   *
   * @param message what was wrong
   * @param remedy what the caller can do, or an empty string
   * @param log what the driver's compiler wrote; empty if nothing
   */
  public PtxException(String message, String remedy, String log) {
    super(message, remedy);
    this.log = log;
  }

  /** What the driver's compiler wrote, its lines as they were; empty if nothing. */
  public String log() {
    return log;
  }
}
