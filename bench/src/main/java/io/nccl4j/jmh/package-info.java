/**
 * JMH benchmarks of what one call costs; {@code java -jar bench/target/benchmarks.jar} runs them.
 *
 * <p>JMH's threads end at times of their own, and a rank that ended early would leave the other one
 * waiting. So JMH drives rank 0 alone, and {@link io.nccl4j.jmh.TwoRanks} has rank 1 on a thread
 * that does the same until the data say that it is over.
 */
@NullMarked
package io.nccl4j.jmh;

import org.jspecify.annotations.NullMarked;
