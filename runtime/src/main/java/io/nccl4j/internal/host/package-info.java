/**
 * The backend on CPUs: ranks as threads or processes of one machine that exchange data through
 * shared memory.
 *
 * <p>Who owns what: the {@link io.nccl4j.internal.host.memory.HostHeap} every byte that ranks
 * share, a {@code HostCommunicator} its place in a {@link
 * io.nccl4j.internal.host.layout.ControlBlock}, a {@code HostStream} its queue. Who drives: any
 * thread that waits moves work, its own first ({@code Progress}); a stream is moved by one thread
 * at a time.
 */
@NullMarked
package io.nccl4j.internal.host;

import org.jspecify.annotations.NullMarked;
