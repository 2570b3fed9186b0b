/** Wires everything: the one place that knows all packages. */
@NullMarked
package io.nccl4j.internal.core;

import org.jspecify.annotations.NullMarked;
