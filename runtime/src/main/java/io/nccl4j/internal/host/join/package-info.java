/**
 * How ranks come into a communicator: by a unique id ({@link
 * io.nccl4j.internal.host.join.Joining}), or by dividing one ({@link
 * io.nccl4j.internal.host.join.Split}). All ranks come or none does, and each gets a {@link
 * io.nccl4j.internal.host.join.Place}.
 */
@NullMarked
package io.nccl4j.internal.host.join;

import org.jspecify.annotations.NullMarked;
