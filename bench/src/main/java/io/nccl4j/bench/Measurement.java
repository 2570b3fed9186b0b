package io.nccl4j.bench;

import java.util.OptionalLong;

/**
 * One placement, out of place or in place, at one size.
 *
 * @param micros time of one operation in microseconds, mean over iterations and ranks
 * @param algBw algorithm bandwidth in GB/s, 1 GB = 10⁹ bytes
 * @param busBw bus bandwidth in GB/s
 * @param wrong wrong elements on all ranks; empty if unchecked
 */
public record Measurement(double micros, double algBw, double busBw, OptionalLong wrong) {}
