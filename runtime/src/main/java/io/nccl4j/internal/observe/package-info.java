/**
 * What is told to observers outside of the program: which operations, joins, connections,
 * allocations, waits and failures there are ({@link io.nccl4j.internal.observe.Recorder}), how much
 * of each operation ({@link io.nccl4j.internal.observe.OperationTally}), and which communicators
 * ({@link io.nccl4j.internal.observe.Beans}). Who carries that out, the flight recorder and JMX, is
 * loaded by name if its module is there; nothing else may depend on it.
 */
@NullMarked
package io.nccl4j.internal.observe;

import org.jspecify.annotations.NullMarked;
