/** Ranks of other hosts: what an operation of the host backend sends to and receives from them. */
@NullMarked
package io.nccl4j.internal.span;

import org.jspecify.annotations.NullMarked;
