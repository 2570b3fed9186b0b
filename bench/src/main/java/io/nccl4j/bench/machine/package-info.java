/** What is known of the machine and of this process on it; and numbers of bytes. */
@NullMarked
package io.nccl4j.bench.machine;

import org.jspecify.annotations.NullMarked;
