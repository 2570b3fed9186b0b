package io.nccl4j.bench.options;

import io.nccl4j.InvalidArgumentException;
import java.util.stream.LongStream;

/**
 * The sizes of a run: from {@code minBytes} to {@code maxBytes}, by a factor if it is above 1, else
 * by adding {@code stepBytes}.
 *
 * @param minBytes the first size
 * @param maxBytes no size is above this one
 * @param stepBytes what is added; unused if there is a factor
 * @param stepFactor what sizes are multiplied with; 1 means to add
 */
public record Sweep(long minBytes, long maxBytes, long stepBytes, int stepFactor) {
  /**
   * Checks that the sweep ends.
   *
   * @throws InvalidArgumentException if it would not, or is empty
   */
  public Sweep {
    if (minBytes < 0) {
      throw new InvalidArgumentException("minbytes is " + minBytes, "use 0 or more");
    }
    if (maxBytes < minBytes) {
      throw new InvalidArgumentException(
          "minbytes " + minBytes + " is above maxbytes " + maxBytes,
          "give a larger -e,--maxbytes or a smaller -b,--minbytes");
    }
    if (stepFactor < 1) {
      throw new InvalidArgumentException("stepfactor is " + stepFactor, "use 1 (off) or more");
    }
    if (stepFactor == 1 && stepBytes < 1 && minBytes < maxBytes) {
      throw new InvalidArgumentException("stepbytes is " + stepBytes, "use 1 or more");
    }
    if (stepFactor > 1 && minBytes == 0 && maxBytes > 0) {
      throw new InvalidArgumentException(
          "stepfactor " + stepFactor + " never leaves minbytes 0", "use -b 1 or more, or -i");
    }
  }

  /** All sizes, rising. */
  public LongStream sizes() {
    return LongStream.iterate(minBytes, size -> size >= 0 && size <= maxBytes, this::after);
  }

  /** The sizes of the warm-up: doubling from {@code minBytes}, as nccl-tests has it. */
  public LongStream doublings() {
    return LongStream.iterate(
        minBytes, size -> size >= 0 && size <= maxBytes, size -> size == 0 ? 1 : times(size, 2));
  }

  // Negative once the next size does not fit into a long, which ends the stream.
  private long after(long size) {
    if (size == maxBytes) {
      return -1;
    }
    if (stepFactor > 1) {
      return times(size, stepFactor);
    }
    return size > Long.MAX_VALUE - stepBytes ? -1 : size + stepBytes;
  }

  private static long times(long size, int factor) {
    return size > Long.MAX_VALUE / factor ? -1 : size * factor;
  }
}
