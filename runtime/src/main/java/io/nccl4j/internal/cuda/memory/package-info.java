/**
 * Memory of GPUs: what is taken from the driver and how it is divided into buffers, pools and
 * ranges of virtual memory; whether a communicator fits.
 *
 * <p>Threads: each class says. Native memory: a mapping belongs to the heap, pool or range that
 * made it, and is freed when no stream uses it any more.
 */
@NullMarked
package io.nccl4j.internal.cuda.memory;

import org.jspecify.annotations.NullMarked;
