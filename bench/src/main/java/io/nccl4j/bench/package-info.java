/**
 * Measures collectives as nccl-tests does and writes what it found.
 *
 * <p>A {@link io.nccl4j.bench.Program} knows one collective: how much data a size means, what goes
 * in, what must come out, and how its bandwidth is counted. {@link io.nccl4j.bench.Bench} runs one
 * program over a sweep of sizes on all ranks of this process, timing and verifying each, and hands
 * typed results to a {@link io.nccl4j.bench.RunListener}: {@link io.nccl4j.bench.TextWriter} prints
 * nccl-tests' table, {@link io.nccl4j.bench.JsonWriter} its JSON.
 *
 * <p>Threads: each thread of a run drives its own ranks; listeners are called by one thread, the
 * one that drives rank 0. Memory: buffers are allocated once per run at the largest size.
 */
@NullMarked
package io.nccl4j.bench;

import org.jspecify.annotations.NullMarked;
