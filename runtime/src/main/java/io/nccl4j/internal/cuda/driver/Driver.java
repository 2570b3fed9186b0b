package io.nccl4j.internal.cuda.driver;

import io.nccl4j.NcclException;
import io.nccl4j.SystemErrorException;
import io.nccl4j.bindings.MemoryAccess;
import io.nccl4j.bindings.cuda.Cuda;
import io.nccl4j.cuda.CudaException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import org.jspecify.annotations.Nullable;

/** Results of the CUDA driver's calls, made exceptions. */
public final class Driver {
  public static final int SUCCESS = 0;
  public static final int OUT_OF_MEMORY = 2;
  public static final int NOT_PERMITTED = 800;
  public static final int NOT_SUPPORTED = 801;
  public static final int NOT_READY = 600;
  public static final int CAPTURE_UNJOINED = 904;

  private static final int LONGEST_TEXT = 1024;

  private Driver() {}

  /** Throws unless the call succeeded. */
  public static void check(int result, String call) {
    if (result != SUCCESS) {
      throw failure(result, call);
    }
  }

  /**
   * The failure of a call that follows others, all of which are made whatever happens.
   *
   * @return the first failure so far, which carries the later ones unless they say the same; null
   *     if there is none
   */
  public static @Nullable NcclException also(
      @Nullable NcclException earlier, int result, String call) {
    if (result == SUCCESS) {
      return earlier;
    }
    if (earlier instanceof CudaException lost && lost.isSticky() && lost.code() == result) {
      // With a lost context all calls fail alike.
      return earlier;
    }
    NcclException failure = failure(result, call);
    if (earlier == null) {
      return failure;
    }
    earlier.addSuppressed(failure);
    return earlier;
  }

  public static NcclException failure(int result, String call) {
    String name = text(result, true);
    String problem = call + " failed with " + name + " (" + result + "): " + text(result, false);
    if (result == OUT_OF_MEMORY) {
      return new SystemErrorException(problem, "free device memory, or allocate less")
          .causedBy(new CudaException(result, name, problem, ""));
    }
    CudaException e =
        new CudaException(
            result, name, problem, "see nvidia-smi, and the kernel's log for messages of NVRM");
    return e.isSticky()
        ? new CudaException(
            result,
            name,
            problem,
            "the device's context is lost: restart the process; compute-sanitizer finds the cause")
        : e;
  }

  /** CUDA's name or description of a result. */
  public static String text(int result, boolean name) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment out = arena.allocate(ValueLayout.ADDRESS);
      int found = name ? Cuda.cuGetErrorName(result, out) : Cuda.cuGetErrorString(result, out);
      return found == SUCCESS ? string(out.get(ValueLayout.ADDRESS, 0)) : "unknown CUDA error";
    }
  }

  /** A C string of the library's own. */
  public static String string(MemorySegment pointer) {
    return pointer.equals(MemorySegment.NULL)
        ? ""
        : MemoryAccess.ofAddress(pointer.address(), LONGEST_TEXT).getString(0);
  }
}
