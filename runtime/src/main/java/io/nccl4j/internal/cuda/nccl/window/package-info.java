/**
 * Memory that NCCL knows: registered buffers, windows, and the device communicators that reach them
 * from kernels.
 */
@NullMarked
package io.nccl4j.internal.cuda.nccl.window;

import org.jspecify.annotations.NullMarked;
