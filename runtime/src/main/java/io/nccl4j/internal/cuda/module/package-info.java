/**
 * A program's own kernels: modules that the driver compiles from PTX, and launching what is in
 * them.
 *
 * <p>Threads: a module is used by any, a launch by the thread that submits to the stream. Native
 * memory: a module owns CUDA's.
 */
@NullMarked
package io.nccl4j.internal.cuda.module;

import org.jspecify.annotations.NullMarked;
