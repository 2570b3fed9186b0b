/**
 * Element-wise arithmetic of the host backend: reductions over memory segments, and copies.
 *
 * <p>{@link io.nccl4j.internal.host.kernel.Kernels} hands out one {@link
 * io.nccl4j.internal.host.kernel.FoldKernel} per data type and reduction. The kernels here work
 * block by block through small heap arrays, whose loops the JIT compiler turns into vector code;
 * where the {@code jdk.incubator.vector} module is there, those of {@code
 * io.nccl4j.internal.host.vector} stand in for the most frequent ones. Both give the same bits.
 *
 * <p>Threads: kernels and copies have no state and may be used by any number of threads; a {@link
 * io.nccl4j.internal.host.kernel.Scratch} belongs to one thread at a time. Memory: the caller owns
 * every segment and keeps it alive during the call; nothing is retained after it.
 */
@NullMarked
package io.nccl4j.internal.host.kernel;

import org.jspecify.annotations.NullMarked;
