/** Operations on Java arrays: through which memory and stream they go, and what they check. */
@NullMarked
package io.nccl4j.internal.array;

import org.jspecify.annotations.NullMarked;
