package io.nccl4j;

/**
 * Memory that NCCL itself has allocated on a rank's device for a communicator, in bytes. Not in it:
 * the program's buffers, pinned host memory, CUDA's context and modules, memory of other ranks.
 *
 * @param suspendableBytes what {@link NcclCommunicator#suspend()} gives back
 * @param suspended whether it is given back now
 * @param persistentBytes what stays
 * @param totalBytes all of it
 */
public record NcclMemoryStatistics(
    long suspendableBytes, boolean suspended, long persistentBytes, long totalBytes) {}
