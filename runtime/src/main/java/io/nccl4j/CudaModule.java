package io.nccl4j;

/**
 * The program's own kernels, compiled by the driver for one device. {@link Device#loadModule} makes
 * it.
 *
 * <p>A module may be shared between threads. It is owned by the caller; what is not closed lives as
 * long as the process.
 */
public interface CudaModule extends AutoCloseable {
  /** The device that the kernels run on. */
  Device device();

  /**
   * A kernel of the module; asking again gives the same one.
   *
   * @param name as PTX has it: for CUDA C++ the mangled name, or the plain one of an {@code extern
   *     "C"} function
   * @throws InvalidArgumentException if the module has no kernel of this name; the message lists
   *     those it has
   * @throws InvalidUsageException if the module is closed
   */
  CudaKernel kernel(String name);

  /**
   * Unloads the module; its kernels, and graphs that they are in, can no longer be launched.
   * Closing twice does nothing.
   *
   * @throws InvalidUsageException if unfinished work of a stream uses it; nothing is unloaded then
   */
  @Override
  void close();
}
