/**
 * Starts the processes of a job on this machine: {@link io.nccl4j.launch.RankProcesses} is what
 * {@code nccl4j run} uses, and tests of programs can use. {@link io.nccl4j.Launch} is the other
 * side, in the processes that were started.
 */
@NullMarked
package io.nccl4j.launch;

import org.jspecify.annotations.NullMarked;
