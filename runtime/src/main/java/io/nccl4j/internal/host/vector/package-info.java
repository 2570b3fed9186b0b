/**
 * Reduction kernels of the host backend on {@code jdk.incubator.vector}, reading and writing memory
 * segments directly. They give the same bits as the kernels of {@code
 * io.nccl4j.internal.host.kernel}.
 *
 * <p>Nothing refers to this package but {@link io.nccl4j.internal.host.kernel.Kernels}, by name and
 * only when the incubator module is there, so that the rest runs without it.
 *
 * <p>Threads: kernels have no state and may be used by any number of threads. Memory: the caller
 * owns every segment and keeps it alive during the call; nothing is retained after it.
 */
@NullMarked
package io.nccl4j.internal.host.vector;

import org.jspecify.annotations.NullMarked;
