/**
 * What lies where in the memory that ranks share, and what it says: nothing here knows who writes
 * or waits.
 *
 * <p>{@link io.nccl4j.internal.host.layout.Layout} has every offset, size and flag; {@link
 * io.nccl4j.internal.host.layout.ControlBlock} is the way to them. {@link
 * io.nccl4j.internal.host.layout.RankState}, {@link io.nccl4j.internal.host.layout.Reason} and
 * {@link io.nccl4j.internal.host.layout.Ledger} are what a rank says of itself: how it is, why it
 * failed, and what it called.
 */
@NullMarked
package io.nccl4j.internal.host.layout;

import org.jspecify.annotations.NullMarked;
