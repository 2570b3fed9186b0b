/** Wires everything: the one place that knows all packages. */
@NullMarked
package io.nccl4j.core;

import org.jspecify.annotations.NullMarked;
