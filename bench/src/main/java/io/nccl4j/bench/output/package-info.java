/** Writes results as text and as JSON. */
@NullMarked
package io.nccl4j.bench.output;

import org.jspecify.annotations.NullMarked;
