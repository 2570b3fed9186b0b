/**
 * The backend on GPUs, over NCCL and the CUDA driver: see {@code docs/cuda-engine.md}. All that is
 * specific to it lies here, but for what finds and loads the two libraries.
 */
@NullMarked
package io.nccl4j.internal.cuda;

import org.jspecify.annotations.NullMarked;
