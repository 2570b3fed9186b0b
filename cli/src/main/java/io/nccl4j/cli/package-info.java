/** The commands: each reads its options, has the work done, prints, and ends with a code. */
@NullMarked
package io.nccl4j.cli;

import org.jspecify.annotations.NullMarked;
