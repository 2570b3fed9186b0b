package io.nccl4j.bench.options;

import io.nccl4j.InvalidArgumentException;

/** Which of the ranks' times a line shows; the order is that of nccl-tests' {@code -a}. */
public enum Average {
  /** Rank 0's. */
  RANK_0,
  /** The mean. */
  MEAN,
  /** The shortest. */
  MIN,
  /** The longest. */
  MAX;

  /**
   * The one with nccl-tests' number, 0 to 3.
   *
   * @throws InvalidArgumentException if there is none
   */
  public static Average ofNumber(int number) {
    if (number < 0 || number >= values().length) {
      throw new InvalidArgumentException("average is " + number, "use 0, 1, 2 or 3");
    }
    return values()[number];
  }
}
