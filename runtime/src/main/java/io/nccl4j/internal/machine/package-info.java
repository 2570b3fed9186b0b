/**
 * What this library knows of the machine it runs on: processors and which of them a thread may use,
 * control groups, processes, and whatever else files of {@code /proc} and {@code /sys} say. Nothing
 * outside of this package reads those files.
 *
 * <p>What the system does not tell is 0, empty or the largest value, as each method says, and no
 * error: Linux in a container shows less, and other systems have none of it.
 *
 * <p>Threads: everything here may be used by any number of threads.
 */
@NullMarked
package io.nccl4j.internal.machine;

import org.jspecify.annotations.NullMarked;
