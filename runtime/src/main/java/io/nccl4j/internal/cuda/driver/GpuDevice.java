package io.nccl4j.internal.cuda.driver;

import io.nccl4j.Device;

/** A device that is a GPU. */
public interface GpuDevice extends Device {
  /** Which one. */
  Gpu gpu();
}
