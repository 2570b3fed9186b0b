/**
 * Native functions for the runtime: the C library ({@link io.nccl4j.bindings.Libc} and the classes
 * it names), finding and loading NCCL and the CUDA driver ({@link io.nccl4j.bindings.GpuLibrary})
 * and other shared libraries ({@link io.nccl4j.bindings.NativeLibraries}), and turning addresses
 * into memory segments ({@link io.nccl4j.bindings.MemoryAccess}). Every restricted call of the
 * project is made here, so that native access is granted to one module.
 *
 * <p>Threads: all classes are stateless or immutable and may be used by any thread. A blocking call
 * blocks the operating-system thread, in a virtual thread its carrier.
 *
 * <p>Memory: nothing here owns memory, mappings or descriptors. What a function returns belongs to
 * its caller; what a caller passes in stays the caller's.
 */
package io.nccl4j.bindings;
