/**
 * The CUDA driver: its library and NCCL's as this process has them, GPUs and their contexts,
 * streams and events as CUDA's handles, results as exceptions. Nothing here knows communicators.
 *
 * <p>Threads: any, unless a class says otherwise. Native memory: what a class is said to own.
 */
@NullMarked
package io.nccl4j.internal.cuda.driver;

import org.jspecify.annotations.NullMarked;
