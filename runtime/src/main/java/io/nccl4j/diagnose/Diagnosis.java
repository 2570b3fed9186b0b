package io.nccl4j.diagnose;

import io.nccl4j.Backend;
import io.nccl4j.Launch;
import io.nccl4j.Provider;
import io.nccl4j.SystemErrorException;
import java.nio.file.Path;
import java.util.List;

/**
 * What the doctor found on this machine, as returned by {@link #of}. Texts are meant for people and
 * may change; names of checks do not.
 *
 * @param checks the checks made
 * @param segments files of NCCL in {@code /dev/shm}, used and unused
 */
public record Diagnosis(List<Check> checks, List<SharedMemorySegment> segments) {
  /** The outcome of a check. */
  public enum Status {
    /** Nothing is wrong, or there is nothing to check, and the check says why. */
    OK,
    /** Something may be slow, surprising or fail later. */
    WARN,
    /** Something does not work. */
    FAIL
  }

  /**
   * One check.
   *
   * @param name its subject, for example {@code /dev/shm}; the same on every machine
   * @param status its outcome
   * @param found what was found
   * @param remedy what to do about it; empty if nothing is wrong
   */
  public record Check(String name, Status status, String found, String remedy) {
    /** A check that found nothing wrong. */
    public static Check ok(String name, String found) {
      return new Check(name, Status.OK, found, "");
    }

    /** A check that found a possible problem. */
    public static Check warn(String name, String found, String remedy) {
      return new Check(name, Status.WARN, found, remedy);
    }

    /** A check that found something that does not work. */
    public static Check fail(String name, String found, String remedy) {
      return new Check(name, Status.FAIL, found, remedy);
    }
  }

  /** Copies the lists. */
  public Diagnosis {
    checks = List.copyOf(checks);
    segments = List.copyOf(segments);
  }

  /**
   * Examines this machine and changes nothing. With GPUs, this takes a second or two.
   *
   * @param backend what the machine is to run: with {@link Backend#AUTO} a GPU may be absent, with
   *     {@link Backend#CUDA} that is a failure; with {@link Backend#HOST} nothing of CUDA is loaded
   */
  public static Diagnosis of(Backend backend) {
    return Provider.get(DiagnoseProvider.class).diagnose(backend);
  }

  /**
   * Removes the files of NCCL in {@code /dev/shm} that are proven to be unused, and returns them.
   *
   * @throws SystemErrorException if a file cannot be removed
   */
  public static List<SharedMemorySegment> removeUnusedSegments() {
    return Provider.get(DiagnoseProvider.class).removeUnusedSegments();
  }

  /**
   * Removes the files of unique ids whose process is certainly gone, and returns them: those in the
   * folders where {@link Launch} leaves ids, and the one that {@code NCCL4J_UNIQUE_ID_FILE} names.
   * Each holds the secret of a job that was killed.
   *
   * @throws SystemErrorException if a file cannot be removed
   */
  public static List<Path> removeStaleIds() {
    return Provider.get(DiagnoseProvider.class).removeStaleIds();
  }

  /** Number of checks with this outcome. */
  public long count(Status status) {
    return checks.stream().filter(check -> check.status == status).count();
  }

  /** Whether no check failed. */
  public boolean isHealthy() {
    return count(Status.FAIL) == 0;
  }
}
