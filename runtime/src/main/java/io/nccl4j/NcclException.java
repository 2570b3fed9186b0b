package io.nccl4j;

/**
 * The root of every failure this library reports. The message says what was wrong and, where one is
 * known, what to do.
 *
 * <p>After an {@link InvalidArgumentException} or an {@link InvalidUsageException} that a call
 * throws directly, nothing was started and every object stays usable. After any other failure of an
 * operation the communicator is failed: its operations are refused and it can only be aborted or
 * closed; its buffers stay valid.
 */
public class NcclException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  /**
   * What went wrong, in NCCL's terms. The ordinal of each constant equals NCCL's {@code
   * ncclResult_t} code.
   */
  public enum Result {
    /** No error. */
    SUCCESS,
    /** A CUDA call failed. */
    UNHANDLED_CUDA_ERROR,
    /** A call to the operating system failed. */
    SYSTEM_ERROR,
    /** A defect in this library or in NCCL. */
    INTERNAL_ERROR,
    /** An argument is wrong; the communicator stays usable. */
    INVALID_ARGUMENT,
    /** The call is wrong in this state, or ranks contradict each other. */
    INVALID_USAGE,
    /** Another rank failed, left or died. */
    REMOTE_ERROR,
    /** Not finished yet. */
    IN_PROGRESS,
    /** A deadline passed. */
    TIMEOUT
  }

  /** What went wrong, by class of cause. */
  private final Result result;

  /** What was wrong, without the remedy. */
  private final String problem;

  /** What to do about it; empty if nothing is known. */
  private final String remedy;

  /**
   * A failure with its remedy.
   *
   * @param result class of cause
   * @param message what was wrong
   * @param remedy what the caller can do, or an empty string
   */
  public NcclException(Result result, String message, String remedy) {
    super(remedy.isEmpty() ? message : message + "; " + remedy);
    this.result = result;
    this.problem = message;
    this.remedy = remedy;
  }

  /** The class of cause. */
  public Result result() {
    return result;
  }

  /** What was wrong: the message without the remedy. */
  public String problem() {
    return problem;
  }

  /** What the caller can do about it; empty if nothing is known. */
  public String remedy() {
    return remedy;
  }

  /**
   * Sets the cause, for use where the exception is thrown.
   *
   * @return this exception
   */
  public NcclException causedBy(Throwable cause) {
    initCause(cause);
    return this;
  }
}
