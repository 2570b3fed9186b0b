/**
 * Notices that a process died: {@link io.nccl4j.internal.liveness.DeathWatch}. It knows no backend.
 *
 * <p>Threads: one daemon for each watch. Memory: the mutexes are the caller's.
 */
@NullMarked
package io.nccl4j.internal.liveness;

import org.jspecify.annotations.NullMarked;
