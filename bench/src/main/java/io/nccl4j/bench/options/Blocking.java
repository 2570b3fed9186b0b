package io.nccl4j.bench.options;

import io.nccl4j.InvalidArgumentException;

/** What the timed loop does after each operation; the order is that of nccl-tests' {@code -z}. */
public enum Blocking {
  /** Nothing: operations are queued, and completed together at the end. */
  NONE,
  /** Waits for the operation and for all ranks; both count. */
  WAIT_AND_BARRIER,
  /** Waits for the operation. */
  WAIT,
  /** Waits for the operation, then for all ranks; only the operation counts. */
  WAIT_THEN_UNTIMED_BARRIER;

  /**
   * The mode with nccl-tests' number, 0 to 3.
   *
   * @throws InvalidArgumentException if there is none
   */
  public static Blocking ofNumber(int number) {
    if (number < 0 || number >= values().length) {
      throw new InvalidArgumentException("blocking is " + number, "use 0, 1, 2 or 3");
    }
    return values()[number];
  }
}
