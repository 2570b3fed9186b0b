/** What a backend implements, so that the rest of the runtime need not know which one it is. */
@NullMarked
package io.nccl4j.internal.spi;

import org.jspecify.annotations.NullMarked;
