/**
 * NCCL: its calls, and the life of one rank's communicator. How it joins, what it may still do in
 * the background, when it is too late, whether it has failed, and what the ranks of this process
 * know of each other. Streams and graphs lie above.
 *
 * <p>Threads: each class says. Native memory: {@link io.nccl4j.internal.cuda.nccl.NcclHandle} owns
 * what NCCL writes to.
 */
@NullMarked
package io.nccl4j.internal.cuda.nccl;

import org.jspecify.annotations.NullMarked;
