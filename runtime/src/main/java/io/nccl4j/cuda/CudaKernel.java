package io.nccl4j.cuda;

import io.nccl4j.DeviceBuffer;
import io.nccl4j.Graph;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.Stream;

/**
 * A kernel of a {@link CudaModule}. It may be shared between threads.
 *
 * <p>A launch allocates a few objects. If that matters, capture it into a {@link Graph}, whose
 * launches allocate nothing.
 */
public interface CudaKernel {
  /**
   * The most bytes of shared memory that a launch can request, besides what the kernel declares.
   */
  int MAX_SHARED_BYTES = 48 << 10;

  /**
   * Numbers of blocks or threads in three dimensions, CUDA's {@code dim3}.
   *
   * @param x at least 1
   * @param y at least 1
   * @param z at least 1
   */
  record Dim(int x, int y, int z) {
    /** Checks that all are at least 1. */
    public Dim {
      if (x < 1 || y < 1 || z < 1) {
        throw new InvalidArgumentException(
            "the dimensions are " + x + " x " + y + " x " + z, "each is at least 1");
      }
    }

    /** One dimension. */
    public Dim(int x) {
      this(x, 1, 1);
    }
  }

  /** The module, whose lifetime is the kernel's. */
  CudaModule module();

  /** The name in PTX. */
  String name();

  /** The most threads per block, which depends on the registers that the kernel needs. */
  int maxThreadsPerBlock();

  /**
   * Queues one run of the kernel, behind everything in the stream; a stream that is being captured
   * adds it to its graph. Buffers among the arguments cannot be closed until it has run. What the
   * kernel reads and writes is not checked: an address outside device memory breaks the device's
   * context for the whole process, see {@link CudaException#isSticky()}.
   *
   * <p>The arguments are the kernel's parameters in order, each of the matching type: a {@link
   * DeviceBuffer} or {@link Long} for a pointer, {@link Byte}, {@link Short}, {@link Integer},
   * {@link Long}, {@link Float} or {@link Double} for a number of that size, and for a structure
   * passed by value a {@link java.lang.foreign.MemorySegment} of its size. A {@link
   * NcclCommunicator.Window} stands for NCCL's {@code ncclWindow_t}, a {@link
   * NcclDeviceCommunicator} for its {@code ncclDevComm} passed by value; like buffers they cannot
   * be closed until the kernel has run. All are copied during the call.
   *
   * <p>A kernel has no deadline of its own: one that never ends is noticed by {@link
   * Stream#synchronize(java.time.Duration)}.
   *
   * @param stream of the module's device
   * @param grid number of blocks; at most 65535 in y and z
   * @param block threads per block; in total at most {@link #maxThreadsPerBlock()}
   * @param sharedBytes dynamic shared memory per block in bytes, up to {@link #MAX_SHARED_BYTES}
   * @param arguments the parameters
   * @throws InvalidArgumentException if a dimension, a size, or the number or type of the arguments
   *     does not fit, or the stream or a buffer is of another device
   * @throws InvalidUsageException if the module, the stream or a buffer is closed
   */
  void launch(Stream stream, Dim grid, Dim block, int sharedBytes, Object... arguments);
}
