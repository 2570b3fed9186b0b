/**
 * Memory: what a program takes, what it will take, and pools.
 *
 * <p>{@link io.nccl4j.memory.MemoryPool} serves buffers in stream order without asking the system.
 * {@link io.nccl4j.memory.MemoryReport} says who has taken what; {@link
 * io.nccl4j.memory.MemoryPrediction} says it of a communicator that is only planned. Both backends
 * have all of this.
 */
@NullMarked
package io.nccl4j.memory;

import org.jspecify.annotations.NullMarked;
