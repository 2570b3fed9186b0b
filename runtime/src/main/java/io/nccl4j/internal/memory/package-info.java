/**
 * Algorithms of memory management that know nothing of where the memory comes from.
 *
 * <p>Threads: each class says. Memory: nothing here owns native memory.
 */
@NullMarked
package io.nccl4j.internal.memory;

import org.jspecify.annotations.NullMarked;
