/**
 * What only GPUs and NCCL have: CUDA's streams, addresses, kernels and virtual memory, and NCCL's
 * options and communicators.
 *
 * <p>{@link io.nccl4j.cuda.CudaDevice#of} and {@link io.nccl4j.cuda.NcclCommunicator#of} lead here
 * from a device or communicator of the {@code cuda} backend; on another backend they throw an
 * {@link io.nccl4j.InvalidUsageException}. {@link io.nccl4j.cuda.NcclOptions} are part of a
 * configuration, and other backends ignore them.
 */
@NullMarked
package io.nccl4j.cuda;

import org.jspecify.annotations.NullMarked;
