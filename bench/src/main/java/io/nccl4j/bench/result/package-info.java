/** What a run found, as records. */
@NullMarked
package io.nccl4j.bench.result;

import org.jspecify.annotations.NullMarked;
