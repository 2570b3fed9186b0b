/**
 * How one rank carries out its operations, over a {@link io.nccl4j.internal.host.engine.RankView}:
 * the memory of all ranks, and whether they are at one. It knows no communicator and no stream.
 *
 * <p>{@link io.nccl4j.internal.host.engine.CollectiveEngine} and {@link
 * io.nccl4j.internal.host.engine.LaneEngine} take one {@link io.nccl4j.internal.host.engine.Step}
 * of an {@link io.nccl4j.internal.host.engine.EngineWork} at a time and never wait. Threads: a work
 * belongs to whoever owns its stream.
 */
@NullMarked
package io.nccl4j.internal.host.engine;

import org.jspecify.annotations.NullMarked;
