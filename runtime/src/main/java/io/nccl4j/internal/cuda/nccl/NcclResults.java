package io.nccl4j.internal.cuda.nccl;

import io.nccl4j.DeadlineException;
import io.nccl4j.InternalErrorException;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.SystemErrorException;
import io.nccl4j.bindings.nccl.Nccl;
import io.nccl4j.cuda.CudaException;
import io.nccl4j.internal.cuda.driver.Driver;
import io.nccl4j.internal.diagnose.Preflight;
import java.lang.foreign.MemorySegment;

/** Results of NCCL's calls, made exceptions. */
public final class NcclResults {
  public static final int SUCCESS = 0;
  public static final int IN_PROGRESS = 7;

  private static final String[] NAMES = {
    "ncclSuccess",
    "ncclUnhandledCudaError",
    "ncclSystemError",
    "ncclInternalError",
    "ncclInvalidArgument",
    "ncclInvalidUsage",
    "ncclRemoteError",
    "ncclInProgress",
    "ncclTimeout"
  };

  private NcclResults() {}

  /** Throws unless the call succeeded or goes on in the background. */
  public static void check(int result, String call) {
    if (isFailure(result)) {
      throw failure(result, call);
    }
  }

  public static boolean isFailure(int result) {
    return result != SUCCESS && result != IN_PROGRESS;
  }

  /**
   * The exception for a failed call. NCCL keeps one text for the whole process, which the next
   * warning overwrites: it is taken at once, and may still be another communicator's.
   */
  public static NcclException failure(int result, String call) {
    String name = result >= 0 && result < NAMES.length ? NAMES[result] : "unknown result";
    StringBuilder problem = new StringBuilder(call);
    problem.append(" failed with ").append(name).append(" (").append(result).append("): ");
    problem.append(Driver.string(Nccl.ncclGetErrorString(result)));
    String last = Features.LAST_ERROR.isPresent() ? lastError() : "";
    if (!last.isEmpty()) {
      problem.append("; NCCL's last message: ").append(last);
    }
    String text = problem.toString();
    return switch (result) {
      case 1 -> new CudaException(-1, name, text, "set NCCL_DEBUG=WARN to see the CUDA call");
      case 2 ->
          new SystemErrorException(
              text,
              (text.contains("/dev/shm") ? Preflight.sharedMemoryRemedy() + "; " : "")
                  + "set NCCL_DEBUG=INFO to see the system call");
      case 4 -> new InvalidArgumentException(text, "set NCCL_DEBUG=WARN to see what NCCL refused");
      case 5 -> new InvalidUsageException(text, "set NCCL_DEBUG=WARN to see what NCCL refused");
      case 6 ->
          new NcclException(
              NcclException.Result.REMOTE_ERROR,
              text,
              "check the other ranks; create a new communicator");
      case 8 -> new DeadlineException(text, "check the other ranks; create a new communicator");
      default -> new InternalErrorException(text, "set NCCL_DEBUG=INFO to see more");
    };
  }

  private static String lastError() {
    return Driver.string(Nccl.ncclGetLastError(MemorySegment.NULL)).strip();
  }
}
