package io.nccl4j.cuda;

import io.nccl4j.Device;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;

/**
 * The program's own kernels, compiled by the driver for one device. {@link CudaDevice#loadModule}
 * creates it.
 *
 * <p>A module may be shared between threads. The caller owns it; unless closed, it lives as long as
 * the process.
 */
public interface CudaModule extends AutoCloseable {
  /** The device that the kernels run on. */
  Device device();

  /**
   * Returns a kernel of the module, the same one for the same name.
   *
   * @param name its name in PTX: for CUDA C++ the mangled name, or the plain one of an {@code
   *     extern "C"} function
   * @throws InvalidArgumentException if the module has no kernel of this name; the message lists
   *     those it has
   * @throws InvalidUsageException if the module is closed
   */
  CudaKernel kernel(String name);

  /**
   * Unloads the module; its kernels, and graphs that contain them, can no longer be launched.
   * Closing twice does nothing.
   *
   * @throws InvalidUsageException if unfinished work of a stream uses it; nothing is unloaded
   */
  @Override
  void close();
}
