package io.nccl4j.internal.spi;

import io.nccl4j.AbortedException;
import io.nccl4j.BackendUnavailableException;
import io.nccl4j.DeadlineException;
import io.nccl4j.InternalErrorException;
import io.nccl4j.InterruptedWaitException;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.MismatchException;
import io.nccl4j.NcclException;
import io.nccl4j.PeerFailedException;
import io.nccl4j.SharedMemoryException;
import io.nccl4j.SystemErrorException;
import io.nccl4j.cuda.CudaException;
import java.nio.charset.StandardCharsets;
import java.util.Collection;

/**
 * Failures that are met again. Every thread that meets one gets an exception of its own: the stack
 * shall be the caller's, and what callers add to theirs, as try-with-resources does, shall not
 * gather in an object that all share.
 */
public final class Failures {
  private Failures() {}

  /** A new exception that says the same; its cause is the first one. */
  public static NcclException again(NcclException first) {
    return again(first, first.problem(), first.remedy(), first.failedRanks());
  }

  /** Text that another process has written, fit for logs and terminals. */
  public static String printable(byte[] text) {
    return new String(text, StandardCharsets.UTF_8).replaceAll("\\p{Cntrl}", " ");
  }

  /** A new exception of the first one's type, which is its cause. */
  public static NcclException again(
      NcclException first, String problem, String remedy, Collection<Integer> failedRanks) {
    NcclException e =
        switch (first) {
          case PeerFailedException ignored -> new PeerFailedException(failedRanks, problem, remedy);
          case AbortedException ignored -> new AbortedException(problem, remedy, failedRanks);
          case DeadlineException ignored -> new DeadlineException(problem, remedy, failedRanks);
          case MismatchException ignored -> new MismatchException(problem, remedy);
          case InvalidUsageException ignored -> new InvalidUsageException(problem, remedy);
          case InvalidArgumentException ignored -> new InvalidArgumentException(problem, remedy);
          case InterruptedWaitException ignored -> new InterruptedWaitException(problem, remedy);
          case InternalErrorException ignored -> new InternalErrorException(problem, remedy);
          case CudaException cuda ->
              new CudaException(cuda.code(), cuda.cudaName(), problem, remedy);
          case SharedMemoryException memory ->
              new SharedMemoryException(problem, remedy, memory.needBytes(), memory.freeBytes());
          case SystemErrorException ignored -> new SystemErrorException(problem, remedy);
          case BackendUnavailableException ignored ->
              new BackendUnavailableException(problem, remedy);
          default -> new NcclException(first.result(), problem, remedy, failedRanks);
        };
    return e.causedBy(first);
  }
}
