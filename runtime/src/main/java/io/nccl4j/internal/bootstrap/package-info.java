/**
 * How the ranks of a communicator find each other on one machine: the unique id of the host
 * backend, and the rendezvous that it names.
 *
 * <p>The process that creates an id serves its rendezvous; ranks that are threads of that process
 * meet in memory, all others connect to its socket. Each rank brings its process's heap as a file
 * descriptor and goes away with the table of all ranks and one descriptor for each other process.
 *
 * <p>Threads: {@link io.nccl4j.internal.bootstrap.Rendezvous} may be used by any number of threads,
 * virtual ones included; a {@link io.nccl4j.internal.bootstrap.Membership} belongs to one thread at
 * a time. Memory: nothing here outlives the rendezvous except the descriptors handed to the caller.
 */
@NullMarked
package io.nccl4j.internal.bootstrap;

import org.jspecify.annotations.NullMarked;
