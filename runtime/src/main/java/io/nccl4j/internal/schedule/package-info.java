/**
 * What happens between a call and its launch, the same for every backend: arguments are checked,
 * groups collected, work takes room in the communicator's FIFO and is handed to its stream.
 * Streams, events, captures and graphs decide here what is allowed; a backend carries it out, by
 * its {@link io.nccl4j.internal.schedule.StreamEngine}, {@link
 * io.nccl4j.internal.schedule.EventEngine} and {@link io.nccl4j.internal.schedule.GraphEngine}.
 *
 * <p>Threads: a FIFO and a group belong to the one thread that submits; works are given back by
 * whichever thread completes them. Everything here is Java heap, allocated when a communicator is
 * created.
 */
@NullMarked
package io.nccl4j.internal.schedule;

import org.jspecify.annotations.NullMarked;
