package io.nccl4j;

import java.util.Collection;

/**
 * The communicator was aborted while the operation was unfinished; the contents of its receive
 * buffers are undefined.
 */
public class AbortedException extends NcclException {
  private static final long serialVersionUID = 1L;

  /**
   * A failure with its remedy.
   *
   * @param message what was wrong
   * @param remedy what the caller can do, or an empty string
   */
  public AbortedException(String message, String remedy) {
    super(Result.INVALID_USAGE, message, remedy);
  }

  /**
   * A failure for which certain ranks are to blame.
   *
   * @param message what was wrong
   * @param remedy what the caller can do, or an empty string
   * @param failedRanks see {@link #failedRanks()}
   */
  public AbortedException(String message, String remedy, Collection<Integer> failedRanks) {
    super(Result.INVALID_USAGE, message, remedy, failedRanks);
  }
}
