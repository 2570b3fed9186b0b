package io.nccl4j.bindings;

/**
 * A function of the C library failed.
 *
 * <p>The message names the function, the error with its number and text, and what was attempted,
 * for example {@code mmap failed with EBADF (9, Bad file descriptor): mapping 4096 bytes of fd 77}.
 */
public final class LibcException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  /** The C function that failed. */
  private final String function;

  /** The error number. */
  private final int errno;

  /** What the caller wanted. */
  private final String attempt;

  LibcException(String function, int errno, String errorText, String attempt) {
    super(message(function, errno, errorText, attempt));
    this.function = function;
    this.errno = errno;
    this.attempt = attempt;
  }

  private static String message(String function, int errno, String errorText, String attempt) {
    String detail = errorText.isEmpty() ? "" + errno : errno + ", " + errorText;
    return function + " failed with " + Errno.name(errno) + " (" + detail + "): " + attempt;
  }

  /**
   * The C function that failed.
   *
   * @return its name as in its manual page, such as {@code mmap}
   */
  public String function() {
    return function;
  }

  /**
   * The error number.
   *
   * @return the positive error number; {@link Errno} has the constants to compare it with
   */
  public int errno() {
    return errno;
  }

  /**
   * The symbolic name of the error.
   *
   * @return a name such as {@code EBADF}
   */
  public String errnoName() {
    return Errno.name(errno);
  }

  /**
   * What was attempted.
   *
   * @return a phrase with the arguments of the call
   */
  public String attempt() {
    return attempt;
  }
}
