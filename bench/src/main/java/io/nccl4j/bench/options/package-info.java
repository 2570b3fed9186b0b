/** What to measure and how: options of nccl-tests and its variables, checked and immutable. */
@NullMarked
package io.nccl4j.bench.options;

import org.jspecify.annotations.NullMarked;
