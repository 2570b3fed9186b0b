/**
 * Runs a program on the ranks of this process. Each thread of a run drives its own ranks; listeners
 * are called by the thread that drives rank 0. Buffers are allocated once a run, at the largest
 * size.
 */
@NullMarked
package io.nccl4j.bench.run;

import org.jspecify.annotations.NullMarked;
