package io.nccl4j.cuda;

import io.nccl4j.Unstable;

/**
 * Memory that NCCL itself has allocated on a rank's device for a communicator, in bytes. It
 * excludes the program's buffers, pinned host memory, CUDA's context and modules, and memory of
 * other ranks.
 *
 * @param suspendableBytes bytes that {@link NcclCommunicator#suspend()} releases
 * @param suspended whether they are released now
 * @param persistentBytes bytes that stay
 * @param totalBytes all bytes
 */
@Unstable
public record NcclMemoryStatistics(
    long suspendableBytes, boolean suspended, long persistentBytes, long totalBytes) {}
