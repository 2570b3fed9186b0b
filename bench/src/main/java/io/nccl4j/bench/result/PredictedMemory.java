package io.nccl4j.bench.result;

/**
 * What NCCL took of the devices for the communicators that were measured, beside what was predicted
 * for them, in bytes.
 *
 * @param predicted for rank 0
 * @param taken for rank 0
 * @param leastDifference of all ranks: taken minus predicted where that is least
 * @param mostDifference where it is most
 */
public record PredictedMemory(
    long predicted, long taken, long leastDifference, long mostDifference) {}
