/**
 * How the ranks of this process, their peers and the peers' processes are, and what is said when
 * one fails.
 *
 * <p>{@link io.nccl4j.internal.host.life.Health} is one rank's; {@link
 * io.nccl4j.internal.host.life.LocalPart} and {@link io.nccl4j.internal.host.life.ProcessGroup} are
 * what the ranks of this process have in common, and free what they shared when all are gone;
 * {@link io.nccl4j.internal.host.life.Explanation} words the failures. Nothing here waits.
 */
@NullMarked
package io.nccl4j.internal.host.life;

import org.jspecify.annotations.NullMarked;
