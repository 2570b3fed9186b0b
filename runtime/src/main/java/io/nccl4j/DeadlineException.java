package io.nccl4j;

import java.util.Collection;

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

  /**
   * A failure for which certain ranks are to blame.
   *
   * @param message what was wrong
   * @param remedy what the caller can do, or an empty string
   * @param failedRanks see {@link #failedRanks()}
   */
  public DeadlineException(String message, String remedy, Collection<Integer> failedRanks) {
    super(Result.TIMEOUT, message, remedy, failedRanks);
  }
}
