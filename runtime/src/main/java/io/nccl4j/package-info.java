/**
 * The public API of nccl4j: collective communication between ranks, on GPUs through NCCL and CUDA
 * ({@code cuda} backend) or on CPUs through shared memory ({@code host} backend), with the same
 * calls.
 *
 * <p>This package is all that most programs need. {@link io.nccl4j.memory} has pools and says what
 * memory was taken and will be; {@link io.nccl4j.cuda} has what only GPUs and NCCL have; {@link
 * io.nccl4j.diagnose} finds what is wrong with a machine; {@link io.nccl4j.launch} starts the
 * processes of a job.
 *
 * <p>Start at {@link io.nccl4j.Communicator}. Names follow NCCL and CUDA: rank, communicator,
 * unique id, stream, event, group. Every failure is an {@link io.nccl4j.NcclException}; all
 * parameters and results are non-null unless marked.
 *
 * <p>Threads: a communicator or stream is used by one thread at a time (it may be handed over);
 * devices, buffers, data types, reductions, unique ids and configurations may be shared freely.
 * Memory: whoever creates a buffer, stream, event or communicator closes it, once; closing twice
 * does nothing.
 */
@NullMarked
package io.nccl4j;

import org.jspecify.annotations.NullMarked;
