package io.nccl4j.bench.result;

/**
 * What NCCL was predicted to take of the devices, and what it took, in bytes.
 *
 * @param predicted for rank 0
 * @param taken for rank 0
 * @param leastDifference of all ranks: taken minus predicted where that is least
 * @param mostDifference where it is most
 */
public record PredictedMemory(
    long predicted, long taken, long leastDifference, long mostDifference) {}
