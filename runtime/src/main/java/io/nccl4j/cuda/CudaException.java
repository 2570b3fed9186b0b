package io.nccl4j.cuda;

import io.nccl4j.NcclException;

/**
 * A call of the CUDA driver failed, or NCCL reports that one of its own did. Holds CUDA's name and
 * code.
 *
 * <p>Some errors are sticky: the device's context is lost for this process, and every later call
 * fails with the same error ({@link #isSticky()}).
 */
public class CudaException extends NcclException {
  private static final long serialVersionUID = 1L;

  /** CUDA's code, or −1. */
  private final int code;

  /** CUDA's name of the code. */
  private final String name;

  /**
   * A failed call.
   *
   * @param code CUDA's {@code CUresult}; −1 if only NCCL knows it
   * @param name its name, for example {@code CUDA_ERROR_OUT_OF_MEMORY}
   * @param message what was wrong
   * @param remedy what the caller can do, or an empty string
   */
  public CudaException(int code, String name, String message, String remedy) {
    super(Result.UNHANDLED_CUDA_ERROR, message, remedy);
    this.code = code;
    this.name = name;
  }

  /** CUDA's {@code CUresult}; −1 if NCCL did not report it. */
  public int code() {
    return code;
  }

  /** CUDA's name of the error. */
  public String cudaName() {
    return name;
  }

  /** Whether the context is lost and only a new process helps. */
  public boolean isSticky() {
    return switch (code) {
      case 214, 700, 702, 714, 715, 716, 717, 718, 719, 720, 721 -> true;
      default -> false;
    };
  }
}
