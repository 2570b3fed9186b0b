package io.nccl4j.bench.result;

import java.util.OptionalDouble;

/**
 * How long a cache line takes from one rank's processor to another's, around a run: where virtual
 * processors move, it tells whether the times of two runs can be compared at all.
 *
 * @param beforeNanos one way before the first operation, in ns; empty if it could not be measured
 * @param afterNanos the same after the last one
 */
public record LineLatency(OptionalDouble beforeNanos, OptionalDouble afterNanos) {
  /** Not measured. */
  public static final LineLatency UNKNOWN =
      new LineLatency(OptionalDouble.empty(), OptionalDouble.empty());
}
