package io.nccl4j.bench.options;

import io.nccl4j.InvalidArgumentException;

/**
 * Kernels that communicate by themselves, instead of NCCL's operations. Immutable, and always
 * valid.
 *
 * @param number nccl-tests' number of the kernel; 0 for NCCL's operations
 * @param ctas blocks of the kernel on each rank
 */
public record DeviceImplementation(int number, int ctas) {
  /** NCCL's operations. */
  public static final DeviceImplementation NONE = new DeviceImplementation(0, 16);

  private static final int MAX_CTAS = 128;

  /**
   * Checks the numbers.
   *
   * @throws InvalidArgumentException if one is out of range
   */
  public DeviceImplementation {
    Options.atLeast("device_implementation", number, 0);
    if (ctas < 1 || ctas > MAX_CTAS) {
      throw new InvalidArgumentException("device_cta_count is " + ctas, "use 1 to " + MAX_CTAS);
    }
  }

  /** Whether NCCL's operations are measured. */
  public boolean isNccl() {
    return number == 0;
  }
}
