/** The options that several commands share, and how their values are checked. */
@NullMarked
package io.nccl4j.cli.options;

import org.jspecify.annotations.NullMarked;
