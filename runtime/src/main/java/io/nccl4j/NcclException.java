package io.nccl4j;

import java.util.Arrays;
import java.util.Collection;
import java.util.List;

/**
 * The root of every failure this library reports. The message says what was wrong and, if known,
 * what to do: on the same line, or on a line of its own after a message of several lines.
 *
 * <p>After an {@link InvalidArgumentException} or an {@link InvalidUsageException} that a call
 * throws directly, nothing was started and every object stays usable. After any other failure of an
 * operation, the communicator has failed: it refuses operations and can only be aborted or closed;
 * its buffers stay valid.
 *
 * <p>A failure of a communicator reaches all threads that use it, at the same time or one after the
 * other. Each call throws its own exception, of the failure's type and with the caller's stack; its
 * cause is the first one, which {@link Communicator#failure()} returns.
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

  /** The class of cause. */
  private final Result result;

  /** What was wrong, without the remedy. */
  private final String problem;

  /** What to do about it; empty if nothing is known. */
  private final String remedy;

  /** The ranks to blame, ascending. */
  private final int[] failedRanks;

  /**
   * A failure with its remedy.
   *
   * @param result class of cause
   * @param message what was wrong
   * @param remedy what the caller can do, or an empty string
   */
  public NcclException(Result result, String message, String remedy) {
    this(result, message, remedy, List.of());
  }

  /**
   * A failure for which certain ranks are to blame.
   *
   * @param result class of cause
   * @param message what was wrong
   * @param remedy what the caller can do, or an empty string
   * @param failedRanks see {@link #failedRanks()}
   */
  public NcclException(
      Result result, String message, String remedy, Collection<Integer> failedRanks) {
    super(remedy.isEmpty() ? message : message + separator(message) + remedy);
    this.result = result;
    this.problem = message;
    this.remedy = remedy;
    this.failedRanks =
        failedRanks.stream().mapToInt(Integer::intValue).distinct().sorted().toArray();
  }

  // After a list a remedy would be taken for a part of its last line.
  private static String separator(String message) {
    return message.indexOf('\n') < 0 ? "; " : "\n";
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
   * The ranks where the failure began, ascending: those that died, left, aborted, or missed a
   * deadline, but not those that failed because of them. Empty if no rank of a communicator is to
   * blame, or if ranks contradict each other and it is not known which is wrong.
   */
  public List<Integer> failedRanks() {
    return Arrays.stream(failedRanks).boxed().toList();
  }

  /**
   * Sets the cause, for use in a throw statement.
   *
   * @return this exception
   */
  public NcclException causedBy(Throwable cause) {
    initCause(cause);
    return this;
  }
}
