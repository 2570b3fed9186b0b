/**
 * What an operation is, once for all backends: {@link io.nccl4j.internal.operation.Operation} says
 * who sends and receives what, {@link io.nccl4j.internal.operation.Arguments} checks what a caller
 * passes, {@link io.nccl4j.internal.operation.Signature} is what the ranks compare.
 *
 * <p>Nothing here has state or allocates; any thread may call it.
 */
@NullMarked
package io.nccl4j.internal.operation;

import org.jspecify.annotations.NullMarked;
