/**
 * The memory of this process that ranks share: the heap, what is allocated from it, who may still
 * touch it, and how much it may be.
 *
 * <p>{@link io.nccl4j.internal.host.memory.ProcessMemory} has all of it; {@link
 * io.nccl4j.internal.host.memory.HostHeap} owns every byte. Memory is given back when nobody uses
 * it ({@link io.nccl4j.internal.host.memory.BufferUser}) and no rank of a failed communicator can
 * reach it ({@link io.nccl4j.internal.host.memory.Quarantine}).
 */
@NullMarked
package io.nccl4j.internal.host.memory;

import org.jspecify.annotations.NullMarked;
