/**
 * JMH benchmarks of what one call costs; {@code ./nccl4j jmh} runs them.
 *
 * <p>JMH's threads end at times of their own, and a rank that ended early would leave the other one
 * waiting. So JMH drives rank 0 alone. {@link io.nccl4j.jmh.Lockstep} has the others on threads
 * that do each step with it; {@link io.nccl4j.jmh.TwoRanks} has rank 1 on a thread that does the
 * same until the data say that it is over.
 */
@NullMarked
package io.nccl4j.jmh;

import org.jspecify.annotations.NullMarked;
