package io.nccl4j.internal.cuda.memory;

import io.nccl4j.Device;
import io.nccl4j.internal.spi.Resource;
import java.lang.foreign.MemorySegment;

/** What kernels take by value besides numbers, and what must stay open until they have run. */
public interface KernelArgument extends Resource {
  /** The device whose kernels take it. */
  Device device();

  /** What a kernel gets: a pointer or a structure. */
  MemorySegment value();

  /** Whether that is a structure. */
  boolean isStructure();

  /** What it is, for messages. */
  String describe();

  /**
   * Throws if it cannot be used.
   *
   * @throws io.nccl4j.InvalidUsageException that says why
   */
  void requireUsable();
}
