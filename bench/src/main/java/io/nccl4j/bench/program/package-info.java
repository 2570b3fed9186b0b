/**
 * nccl-tests' programs. A {@link io.nccl4j.bench.program.Program} knows one collective: how much
 * data a size means, how it is issued, what goes in, what must come out, and how its bandwidth is
 * counted.
 */
@NullMarked
package io.nccl4j.bench.program;

import org.jspecify.annotations.NullMarked;
