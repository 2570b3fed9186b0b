/**
 * Who moves what, and how a wait goes on: {@link io.nccl4j.internal.host.progress.Progress} drives
 * queues ({@link io.nccl4j.internal.host.progress.Driven}) and is the only wait.
 *
 * <p>Threads: any thread that waits, and one daemon, the ticker.
 */
@NullMarked
package io.nccl4j.internal.host.progress;

import org.jspecify.annotations.NullMarked;
