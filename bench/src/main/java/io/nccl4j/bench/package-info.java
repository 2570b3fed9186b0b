/**
 * Measures collectives as nccl-tests does and writes what it found.
 *
 * <p>The rooms, each of which knows those before it:
 *
 * <ul>
 *   <li>{@code machine}: what the system tells of this process; numbers of bytes
 *   <li>{@code data}: what goes into buffers, what must come out, and comparing the two
 *   <li>{@code options}: what to measure and how
 *   <li>{@code program}: the collectives, each with the meaning of a size, its data and its
 *       bandwidth
 *   <li>{@code result}: what a run found, as records, and who hears of it
 *   <li>{@code run}: threads, ranks and clocks
 *   <li>{@code output}: nccl-tests' table, and JSON
 *   <li>{@code selftest}: the self test and the soak
 *   <li>{@code report}: comparing results that were written before; of the others it knows {@code
 *       result} and {@code machine}
 * </ul>
 *
 * <p>This package itself holds what all of them use.
 */
@NullMarked
package io.nccl4j.bench;

import org.jspecify.annotations.NullMarked;
