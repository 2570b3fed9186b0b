/** What buffers hold before an operation and must hold after it; writing, and comparing. */
@NullMarked
package io.nccl4j.bench.data;

import org.jspecify.annotations.NullMarked;
