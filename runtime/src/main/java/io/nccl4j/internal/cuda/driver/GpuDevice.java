package io.nccl4j.internal.cuda.driver;

import io.nccl4j.cuda.CudaDevice;

/** A device that is a GPU. */
public interface GpuDevice extends CudaDevice {
  /** Which one. */
  Gpu gpu();
}
