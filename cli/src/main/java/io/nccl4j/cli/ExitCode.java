package io.nccl4j.cli;

import io.nccl4j.DeadlineException;
import io.nccl4j.NcclException;

/** What the process's exit code says. */
public enum ExitCode {
  /** Everything was done, and no checked element was wrong. */
  OK(0),
  /** A defect; {@code --verbose} shows where. */
  INTERNAL(1),
  /** An option is wrong; nothing was started. */
  BAD_OPTION(2),
  /** A call failed; the message says why. */
  FAILED(3),
  /** A deadline passed. */
  TIMEOUT(4),
  /** The run went to its end, but elements were wrong. */
  WRONG_DATA(7),
  /** A comparison found that something takes more time. */
  SLOWER(8),
  /** What was to be compared was measured under different conditions. */
  NOT_COMPARABLE(9),
  /** The doctor found something that does not work. */
  UNHEALTHY(10);

  private final int number;

  ExitCode(int number) {
    this.number = number;
  }

  /** The number the process exits with. */
  public int number() {
    return number;
  }

  /** The code of a failure. */
  static ExitCode of(Throwable failure) {
    if (failure instanceof DeadlineException) {
      return TIMEOUT;
    }
    return failure instanceof NcclException ? FAILED : INTERNAL;
  }
}
